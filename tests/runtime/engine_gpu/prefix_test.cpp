// Goal    KV of a prefix is taken from another session on a GPU too, where it lies in the GPU's
//         memory, and where it passes through frames over a disk.
// Method  an emulated GPU; answers beside one that reuses nothing; counts of groups.
#include "tests/runtime/engine_gpu/gpu_engine.h"
#include "tests/support/sim_disk.h"

namespace tarn::test::prefix_test {
namespace {

using engine::SessionIdx;

constexpr u32 kPage = 32;

Config config_of(bool over_disk, bool reuses) {
  Config config = small_config();
  config.context_tokens = 16 * kPage;
  config.page_tokens = kPage;
  config.sessions_max = 3;
  config.batch_rows_max = 32;
  config.reuse.prefix = reuses;
  if (!over_disk) return config;
  set_text(config.store.path, "store");
  config.store.quota_bytes = kGiB;
  config.store.sessions = true;
  return config;
}

struct Answers {
  std::vector<std::vector<u32>> tokens;
  u32 n_reused = 0, n_pages = 0;
};

// Of two sessions with one prompt at the same time, and of a third one later.
Answers answers(const GpuModel& model, bool over_disk, bool reuses) {
  SimDisk disk(1);
  VirtualClock clock;
  SimIo io(disk, clock, 32);
  GpuEngine gpu;
  if (over_disk) gpu.store_io = &io, gpu.lent_clock = &clock;
  const Result<void> opened = gpu.open(model.path(), config_of(over_disk, reuses));
  if (!opened) FAIL(std::string(opened.error().hint));
  const std::vector<u32> prompt = random_ids(1, 2 * kPage + 5);
  Answers out;
  std::vector<SessionIdx> sessions;
  const auto begin = [&] {
    sessions.push_back(*gpu.engine.sessions().create());
    REQUIRE(gpu.engine.sessions().feed(sessions.back(), prompt).has_value());
  };
  begin(), begin();
  gpu.run();
  begin();
  for (const SessionIdx session : sessions) {
    REQUIRE(
        gpu.engine.sessions().generate(session, {.max_tokens = 2, .ignore_end = true}).has_value());
    const Said said = read_all(gpu.engine, session);
    out.tokens.push_back(said.tokens);
    out.n_reused += said.done.reused.n_tokens();
  }
  const kv::GroupPool& pool = lab::Probe::pool(gpu.engine);
  out.n_pages = (pool.groups_max() - pool.groups_free()) / gpu.engine.spec().n_cache_layers;
  lab::Probe::kv(gpu.engine).prefixes().index().check_invariants();
  return out;
}

}  // namespace

TEST_CASE("a prefix is shared in a GPU's memory and over a disk, and changes no token") {
  const GpuModel model("llama", "q8_0");
  for (const bool over_disk : {false, true}) {
    CAPTURE(over_disk);
    const Answers want = answers(model, over_disk, false), got = answers(model, over_disk, true);
    CHECK(got.tokens == want.tokens);
    CHECK(got.tokens[0] == got.tokens[2]);
    CHECK(want.n_reused == 0);
    CHECK(want.n_pages == 3 * 3);
    CHECK(got.n_reused >= 2 * kPage);
    CHECK(got.n_pages == 2 + 3);
  }
}

}  // namespace tarn::test::prefix_test
