// Goal    full attention over a disk does not wait where there is enough to compute: while one
//         layer is computed, the groups of the next are on their way, and it finds them there.
// Method  decode steps over a simulated disk, each read of 3 ms, in virtual time; a layer has two
//         pin sets, and of the whole there are frames for a part. Before each layer's
//         attention the reads that are under way are counted, and as much time passes as there is
//         to compute, or none.
#include <doctest/doctest.h>

#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine::read_ahead_native_test {
namespace {

constexpr u32 kLayers = 8;
constexpr u32 kPage = 16;
constexpr u32 kPages = 2 * plan::kTierPinSetGroups;
constexpr u32 kFrames = 150;  // of 256 groups
constexpr u32 kSteps = 10;
constexpr u64 kFrameBytes = 8192;
constexpr u64 kReadNs = 3'000'000;

struct Layers {
  const Engine* engine = nullptr;
  VirtualClock* clock = nullptr;
  u64 compute_ns = 0;    // of a layer
  u64 n_groups_met = 0;  // on their way to a layer when it had not asked for them yet
  u32 n_layers_met = 0;  // that had some

  static void on_rows(void* context, const step::KvRows& rows) {
    auto& self = *static_cast<Layers*>(context);
    const kv::Sequence& sequence = self.engine->sessions().state(0).sequence;
    const kv::Residency& residency = lab::Probe::tiers(*self.engine).residency;
    u32 n_loading = 0;
    for (u32 page = 0; page < sequence.n_groups(); ++page) {
      const u32 group_idx = sequence.group(rows.cache_layer, page).idx;
      n_loading += residency.where(group_idx) == kv::Where::loading;
    }
    self.n_groups_met += n_loading;
    self.n_layers_met += n_loading > 0;
    self.clock->advance_ns(self.compute_ns);
  }
};

struct Spent {
  u64 wait_ns = 0, n_loads = 0;
  u64 n_groups_met = 0, n_layers_met = 0;
};

Spent spent_by(const test::SmallModel& model, u64 compute_ns) {
  Config config = test::small_config();
  config.context_tokens = (kPages + 2) * kPage;
  config.page_tokens = kPage;
  config.sessions_max = 1;
  config.batch_rows_max = 64;
  config.kv_memory_bytes = kFrames * kFrameBytes;
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  test::SimDisk disk(1);
  VirtualClock clock;
  test::SimIo io(disk, clock, 64);
  test::OpenEngine open(model.path(), config, &clock, &io);
  Engine& engine = open.engine;
  REQUIRE(engine.plan().tiers.n_frames == kFrames);
  REQUIRE(engine.plan().tiers.pin_set_groups == plan::kTierPinSetGroups);
  // All but the last page: its rows are the answer's.
  const SessionIdx session = open.session_with(test::random_ids(1, (kPages - 1) * kPage));
  REQUIRE(
      engine.sessions().generate(session, {.max_tokens = kPage, .ignore_end = true}).has_value());
  while (engine.sessions().state(session).generation.n_generated < 4) engine.step();
  disk.script.latency_ns_min = disk.script.latency_ns_max = kReadNs;
  engine.step();
  Layers layers{.engine = &engine, .clock = &clock, .compute_ns = compute_ns};
  lab::Probe(engine).watch_kv({&Layers::on_rows, &layers});
  const kv::MoverStats before = lab::Probe::tiers(engine).mover.stats();
  for (u32 i = 0; i < kSteps; ++i) REQUIRE(engine.step().n_decode_rows == 1);
  lab::Probe(engine).watch_kv({});
  const kv::MoverStats& after = lab::Probe::tiers(engine).mover.stats();
  return {.wait_ns = after.wait_ns - before.wait_ns,
          .n_loads = after.n_loads - before.n_loads,
          .n_groups_met = layers.n_groups_met,
          .n_layers_met = layers.n_layers_met};
}

TEST_CASE("the next layer's groups come while one is computed, and attention does not wait") {
  const test::SmallModel model("llama", "q8_0", 1, kLayers);
  const Spent idle = spent_by(model, 0), busy = spent_by(model, 3 * kReadNs);
  constexpr u64 kMissing = kLayers * kPages - kFrames;
  CHECK(idle.n_loads >= kSteps * kMissing);
  CHECK(busy.n_loads >= kSteps * kMissing);
  // With nothing to compute each layer that is not all there waits for a read's time at least.
  CHECK(idle.wait_ns > kSteps * kLayers / 2 * kReadNs);
  CHECK(busy.wait_ns < kReadNs);
  CHECK(busy.n_layers_met >= kSteps * kLayers / 2);
  CHECK(busy.n_groups_met >= kSteps * kMissing / 2);
  MESSAGE("waits of ", idle.wait_ns / 1'000, " us with nothing to compute, of ",
          busy.wait_ns / 1'000, " us with enough; ", busy.n_loads, " reads, ", busy.n_groups_met,
          " of them on their way before they were asked for, of ", busy.n_layers_met, " layers");
}

}  // namespace
}  // namespace tarn::engine::read_ahead_native_test
