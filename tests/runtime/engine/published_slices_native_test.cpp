// Goal    a kept prompt is read in slices that take 2.5 s at most, however slow its rows get and
//         whatever of that time the disk has, so that at no moment more than 5 s of its work are
//         lost with the process. Rows behind the last full page are lost, too: pages have 16 here.
// Method  an engine over a simulated disk, in virtual time that passes layer by layer, as long as
//         rows of that depth take. In each layer of each step, what is published is held against
//         when the rows were computed; a copy of the disk is taken up at the end of some steps.
#include <doctest/doctest.h>

#include <array>

#include "tests/runtime/engine/kept_life.h"

namespace tarn::engine {
namespace {

using test::KeptLife;
using test::SimDisk;
using test::SmallModel;

constexpr u32 kLayers = 16;
constexpr u32 kPrompt = 900;
constexpr u32 kRowsMax = 256;
constexpr u64 kSliceNs = 2'500'000'000;
constexpr u64 kLostNsMax = 5'000'000'000;
// The rows of a slice are planned by those of the one before, which were faster.
constexpr u64 kStepNsMax = kSliceNs + kSliceNs / 5;

// A prompt, while it is read by rows that take row_ns() of all layers.
class SlowPrompt {
 public:
  SlowPrompt(KeptLife& life, u32 n_layers, u64 first_row_ns, u64 more_ns)
      : life_(life), n_layers_(n_layers), first_row_ns_(first_row_ns), more_ns_(more_ns) {
    session_ = test::create(life);
    REQUIRE(engine().keep(session_, "talk").has_value());
    REQUIRE(engine().feed(session_, test::random_ids(1, kPrompt)).has_value());
    engine().watch_kv({&SlowPrompt::on_rows, this});
  }

  // A step; its rows.
  u32 step() {
    step_ns_ = life_.clock.now_ns();
    const u64 revision = state().revision;
    const u32 n_rows = engine().step().n_rows;
    if (state().revision != revision) n_begun_ = state().sequence.n_slots();
    step_ns_max = std::max(step_ns_max, life_.clock.now_ns() - step_ns_);
    return n_rows;
  }
  // Full pages of what a manifest on the disk names.
  u32 n_published() const {
    const bool saves = life_.open.engine.kv_stream().sessions().is_saving();
    const u32 n = saves ? state().n_published : std::max(n_begun_, state().n_published);
    return n / test::kKeptPage * test::kKeptPage;
  }
  const Session& state() const { return life_.open.engine.session_state(session_); }

  u64 step_ns_max = 0;
  u64 lost_ns_max = 0;

 private:
  Engine& engine() { return life_.engine(); }
  u64 row_ns(u32 slot) const { return first_row_ns_ + slot * more_ns_; }

  // A row's share of its step: from the end of that of the row before to its own.
  static void on_rows(void* context, const KvRows& rows) {
    auto& self = *static_cast<SlowPrompt*>(context);
    u64 all_ns = 0;
    for (u32 slot = rows.first_slot; slot < rows.first_slot + rows.n; ++slot) {
      self.begun_ns_[slot] = self.step_ns_ + all_ns;
      all_ns += self.row_ns(slot);
    }
    self.life_.clock.advance_ns(all_ns / self.n_layers_);
    const u64 lost_ns = self.life_.clock.now_ns() - self.begun_ns_[self.n_published()];
    self.lost_ns_max = std::max(self.lost_ns_max, lost_ns);
  }

  KeptLife& life_;
  const u32 n_layers_;
  const u64 first_row_ns_, more_ns_;
  SessionIdx session_ = 0;
  u64 step_ns_ = 0;
  u32 n_begun_ = 0;  // slots of the last publication that has begun
  std::array<u64, kPrompt> begun_ns_{};
};

TEST_CASE(
    "the slower a kept prompt's rows, the fewer are in a slice, and 5 s of work are the most") {
  const SmallModel model("llama", "q8_0", 1, kLayers);
  // 64 rows without a measure before them take 2.4 s, and the last ones 100 ms each.
  constexpr u64 kFirstNs = 35'000'000, kMoreNs = 72'000;
  const test::KeptHow how{.rows_max = kRowsMax, .publish_ms = 1'000};
  SimDisk disk(1);
  // An op of such rows takes longer than anything that the disk does.
  disk.script.latency_ns_min = disk.script.latency_ns_max = 500;
  KeptLife life(model, how, disk);
  SlowPrompt prompt(life, kLayers, kFirstNs, kMoreNs);
  u32 n_steps = 0, n_rows_first = 0, n_rows_last = 0;
  for (; prompt.state().n_computable() > 0; ++n_steps) {
    const u32 n_rows = prompt.step();
    if (prompt.state().n_computable() > 0) n_rows_last = n_rows;  // the last slice is a rest
    if (n_steps == 0) n_rows_first = n_rows;
    if (n_steps % 8 == 7)
      CHECK(test::taken_up(model, how, disk).n_computed >= prompt.n_published());
  }
  CHECK(n_rows_first == 64);
  CHECK(n_rows_last < 32);
  CHECK(prompt.step_ns_max <= kStepNsMax);
  CHECK(prompt.lost_ns_max < kLostNsMax);
  CHECK(prompt.lost_ns_max > kSliceNs);  // it is measured
  MESSAGE(n_steps, " steps, the longest of ", prompt.step_ns_max / 1'000'000, " ms, the last of ",
          n_rows_last, " rows; ", prompt.lost_ns_max / 1'000'000, " ms lost at most");
}

TEST_CASE("what a step waits for the disk is no time for rows of a kept prompt") {
  const SmallModel model("llama", "q8_0");
  constexpr u32 kModelLayers = 2;
  const test::KeptHow how{.few_frames = true, .publish_ms = 1'000};
  SimDisk disk(1);
  KeptLife life(model, how, disk);
  disk.script.latency_ns_min = disk.script.latency_ns_max = 30'000'000;
  SlowPrompt prompt(life, kModelLayers, 38'000'000, 0);
  u64 wait_ns_max = 0;
  u32 n_rows_last = 0;
  while (prompt.state().n_computable() > 0) {
    const u64 wait_ns = life.engine().counters().disk.wait_ns;
    const u32 n_rows = prompt.step();
    if (prompt.state().n_computable() > 0) n_rows_last = n_rows;
    wait_ns_max = std::max(wait_ns_max, life.engine().counters().disk.wait_ns - wait_ns);
  }
  CHECK(wait_ns_max > 500'000'000);
  CHECK(wait_ns_max < kSliceNs / 2);  // or as long as it waits is computed
  CHECK(n_rows_last < 52);
  CHECK(prompt.step_ns_max <= kStepNsMax);
  MESSAGE("waits of ", wait_ns_max / 1'000'000, " ms at most, steps of ",
          prompt.step_ns_max / 1'000'000, " ms, the last of ", n_rows_last, " rows");
}

}  // namespace
}  // namespace tarn::engine
