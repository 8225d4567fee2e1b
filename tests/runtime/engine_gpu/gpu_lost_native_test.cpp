// Goal    of a GPU that is lost after READY nothing more is believed: no token, no KV, no step;
//         what was said before stays, and memory is given back.
// Method  the fake device and the emulated kernels: a prompt that takes the kernels of many rows,
//         then two tokens, by graphs; each call to the GPU fails in turn, and all behind it.
#include <algorithm>
#include <array>

#include "platform/gpu/gpu_errors.h"
#include "tests/runtime/engine_gpu/gpu_engine.h"

namespace tarn::test::gpu_lost_native_test {
namespace {

using engine::SessionIdx;

// What a caller has seen of a generation.
struct Seen {
  std::vector<u32> tokens;
  bool ended = false;
};
Seen take_all(engine::Engine& engine, SessionIdx session) {
  Seen seen;
  engine::Event event;
  std::array<char, 64> text{};
  while (engine.sessions().take_event(session, &event, text)) {
    if (event.type == engine::EventType::token) seen.tokens.push_back(event.token.token);
    seen.ended = seen.ended || event.type == engine::EventType::done;
  }
  return seen;
}

TEST_CASE("a GPU lost at any call after READY: no token, no KV and no step from then on") {
  const GpuModel model("llama", "q8_0", GpuModelSize::one_layer);
  const std::vector<u32> ids = random_ids(seed_from_environment(), 9, GpuModel::kVocab);
  constexpr u32 kTokens = 2;
  Config config = small_config();
  config.context_tokens = 64;
  config.page_tokens = 32;
  config.sessions_max = 1;
  std::vector<u32> tokens;  // what is generated where nothing fails
  u64 n_ready = 0, n_end = 0;
  // A prompt, then a generation, one step after the other, until the end or the loss.
  const auto run = [&](GpuEngine& gpu, u64 call) {
    REQUIRE(gpu.open(model.path(), config).has_value());
    n_ready = gpu.device.n_calls();
    if (call > 0) {
      gpu.device.fail_at({.call = n_ready + call, .code = kGpuIllegalAddress, .for_ever = true});
    }
    const SessionIdx session = *gpu.engine.sessions().create();
    REQUIRE(gpu.engine.sessions().feed(session, ids).has_value());
    REQUIRE(gpu.engine.sessions()
                .generate(session, {.max_tokens = kTokens, .ignore_end = true})
                .has_value());
    gpu.run();
    return session;
  };
  {
    GpuEngine gpu;
    tokens = take_all(gpu.engine, run(gpu, 0)).tokens;
    n_end = gpu.device.n_calls() - n_ready;
  }
  REQUIRE(tokens.size() == kTokens);
  REQUIRE(n_end > 20);
  MESSAGE(n_end << " calls after READY");
  u64 n_tokens_max = 0;
  for (u64 call = 1; call <= n_end; ++call) {
    CAPTURE(call);
    GpuEngine gpu;
    const SessionIdx session = run(gpu, call);
    CHECK(gpu.engine.device_lost());
    CHECK(!gpu.engine.has_work());
    const Seen seen = take_all(gpu.engine, session);
    CHECK(!seen.ended);
    REQUIRE(seen.tokens.size() < kTokens);
    CHECK(std::equal(seen.tokens.begin(), seen.tokens.end(), tokens.begin()));
    n_tokens_max = std::max<u64>(n_tokens_max, seen.tokens.size());
    // A step's rows are in the KV if its first logits were believed: the prompt, a token each.
    const u32 n_slots = gpu.engine.sessions().state(session).sequence.n_slots();
    CHECK(n_slots <= ids.size() + seen.tokens.size());
    CHECK(gpu.engine.step().n_rows == 0);
    CHECK(gpu.engine.sessions().state(session).sequence.n_slots() == n_slots);
    CHECK(take_all(gpu.engine, session).tokens.empty());
    gpu.engine.close();
    CHECK(gpu.device.leaks() == "");
  }
  CHECK(n_tokens_max == kTokens - 1);  // some were lost late
}

}  // namespace
}  // namespace tarn::test::gpu_lost_native_test
