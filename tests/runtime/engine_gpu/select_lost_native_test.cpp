// Goal    of a GPU that is lost while it reads by selection, or while an index is made for it, no
//         token is believed, and memory is given back.
// Method  as gpu_lost_native_test.cpp, from the first copy of keys on: each call to the GPU fails
//         in turn, and all behind it, through the clustering, the swap and a row that selects.
#include <algorithm>
#include <array>

#include "platform/gpu/gpu_errors.h"
#include "tests/runtime/engine_gpu/select_gpu.h"

namespace tarn::test::select_lost_native_test {
namespace {

using engine::SessionIdx;

TEST_CASE("a GPU lost at any call of a selection: no token and no step from then on") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  constexpr u32 kTokens = 3;
  const std::vector<u32> ids = random_ids(seed_from_environment(), 20, GpuModel::kVocab);
  Config config = small_config();
  config.context_tokens = 64;
  config.page_tokens = 32;
  config.sessions_max = 1;
  config.select = least_select(/*index_delay_tokens=*/2);
  // The prompt and its token, then the rest, in which `call` fails; 0: none.
  u64 n_calls = 0, n_chosen = 0;
  const auto run = [&](GpuEngine& gpu, u64 call) {
    REQUIRE(gpu.open(model.path(), config).has_value());
    const SessionIdx session = *gpu.engine.sessions().create();
    REQUIRE(gpu.engine.sessions().feed(session, ids).has_value());
    REQUIRE(gpu.engine.sessions()
                .generate(session, {.max_tokens = kTokens, .ignore_end = true})
                .has_value());
    gpu.engine.step();
    const u64 n_before = gpu.device.n_calls();
    if (call > 0) {
      gpu.device.fail_at({.call = n_before + call, .code = kGpuIllegalAddress, .for_ever = true});
    }
    n_chosen = 0;
    while (gpu.engine.has_work()) n_chosen += gpu.engine.step().n_slots_chosen;
    n_calls = gpu.device.n_calls() - n_before;
    return session;
  };
  const auto tokens_of = [](GpuEngine& gpu, SessionIdx session, bool* ended) {
    std::vector<u32> tokens;
    engine::Event event;
    std::array<char, 64> text{};
    while (gpu.engine.sessions().take_event(session, &event, text)) {
      if (event.type == engine::EventType::token) tokens.push_back(event.token.token);
      *ended = *ended || event.type == engine::EventType::done;
    }
    return tokens;
  };
  std::vector<u32> expected;
  u64 n_all = 0;
  {
    GpuEngine gpu;
    bool ended = false;
    expected = tokens_of(gpu, run(gpu, 0), &ended);
    CHECK(ended);
    n_all = n_calls;
  }
  REQUIRE(expected.size() == kTokens);
  CHECK(n_chosen > 0);
  MESSAGE(n_all << " calls");
  for (u64 call = 1; call <= n_all; ++call) {
    CAPTURE(call);
    GpuEngine gpu;
    const SessionIdx session = run(gpu, call);
    CHECK(gpu.engine.device_lost());
    CHECK(!gpu.engine.has_work());
    bool ended = false;
    const std::vector<u32> tokens = tokens_of(gpu, session, &ended);
    CHECK(!ended);
    REQUIRE(tokens.size() < kTokens);
    CHECK(std::equal(tokens.begin(), tokens.end(), expected.begin()));
    CHECK(gpu.engine.step().n_rows == 0);
    gpu.engine.close();
    CHECK(gpu.device.leaks() == "");
  }
}

}  // namespace
}  // namespace tarn::test::select_lost_native_test
