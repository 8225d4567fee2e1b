// Goal    what a named session has said and computed is on disk soon after, without a save: all
//         tokens of an answer that has ended, also of one that selected, and all KV to the last
//         full page, or to the last slot where it selects. (One that was cut off goes on with its
//         bits: sim/select_random, checkpoint_crash.)
// Method  engines over a simulated disk; a copy of the disk, as a kill leaves it, is restored by
//         another engine.
#include <doctest/doctest.h>

#include <utility>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::checkpoint_native_test {
namespace {

using test::found_after_kill;
using test::SavedLife;
using test::SimDisk;
using test::SmallModel;
using test::There;

SessionIdx kept(SavedLife& life) {
  const SessionIdx session = test::create(life);
  REQUIRE(life.engine().sessions().autosave(session, "talk").has_value());
  return session;
}

// All that is to be computed, and what the engine does behind it of its own accord.
void settle(SavedLife& life) {
  life.open.run();
  for (u32 i = 0; lab::Probe::kv(life.engine()).is_moving(); ++i) {
    REQUIRE(i < 10'000);
    life.engine().step();
  }
}

// The same, with time that passes in steps.
void read_on(SavedLife& life) {
  while (life.engine().has_work()) {
    life.clock.advance_ns(2'000'000);
    life.engine().step();
  }
}

std::vector<u32> ids_of(SavedLife& life, SessionIdx session) {
  const Session& s = life.engine().sessions().state(session);
  return {s.tokens.ids.begin(), s.tokens.ids.begin() + s.tokens.n_ids};
}

TEST_CASE("an answer that has ended is on disk to its last token") {
  const SmallModel model("llama", "q8_0");
  const test::SavedHow how{.checkpoint_ms = 3'600'000};  // nothing is due while it is written
  SimDisk disk(1);
  SavedLife life(model, how, disk);
  const SessionIdx session = kept(life);
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(1, 100)).has_value());
  life.generate(session, 23);
  settle(life);
  const There there = found_after_kill(model, how, disk);
  CHECK(there.ids == ids_of(life, session));
  CHECK(there.n_computed == 112);
  CHECK_FALSE(there.is_cut_off);
  const u64 n_writes = disk.n_write_events();
  for (u32 i = 0; i < 5; ++i) life.engine().step();
  CHECK(disk.n_write_events() == n_writes);
}

TEST_CASE("an input that comes in parts of one step each has checkpoints as it comes") {
  const SmallModel model("llama", "q8_0");
  const test::SavedHow how{.checkpoint_ms = 1};
  SimDisk disk(1);
  SavedLife life(model, how, disk);
  const SessionIdx session = kept(life);
  for (u32 part = 0; part < 5; ++part) {
    CAPTURE(part);
    life.clock.advance_ns(60'000'000'000);
    REQUIRE(life.engine().sessions().feed(session, test::random_ids(part, 40)).has_value());
    read_on(life);
    REQUIRE(life.engine().sessions().state(session).state == SessionState::idle);
    const There there = found_after_kill(model, how, disk);
    CHECK(there.ids == ids_of(life, session));
    CHECK(there.n_computed == (40 * (part + 1) - 1) / test::kSavedPage * test::kSavedPage);
    CHECK(there.is_cut_off);
  }
  // What a cancel leaves is not what is to be gone on with.
  life.clock.advance_ns(60'000'000'000);
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(9, 40)).has_value());
  life.engine().sessions().request_cancel(session);
  read_on(life);
  CHECK(found_after_kill(model, how, disk).ids.size() == 200);
}

TEST_CASE("what was fed last is on disk when its session ends") {
  const SmallModel model("llama", "q8_0");
  const test::SavedHow how{.checkpoint_ms = 3'600'000};
  for (const u32 n_ids : {7u, 40u}) {
    CAPTURE(n_ids);
    SimDisk disk(1);
    SavedLife life(model, how, disk);
    const SessionIdx session = kept(life);
    REQUIRE(life.engine().sessions().feed(session, test::random_ids(1, n_ids)).has_value());
    settle(life);
    life.engine().sessions().destroy(session);
    const There there = found_after_kill(model, how, disk);
    CHECK(there.ids.size() == n_ids);
    CHECK(there.n_computed == n_ids / test::kSavedPage * test::kSavedPage);
    CHECK(there.is_cut_off);
  }
}

// Rows that take as long as pages do elsewhere, so that checkpoints meet unfinished pages.
class SlowRows {
 public:
  SlowRows(SavedLife& life, u64 row_ns) : life_(life), row_ns_(row_ns) {
    lab::Probe(life.engine()).watch_kv({&SlowRows::on_rows, this});
  }
  ~SlowRows() { lab::Probe(life_.engine()).watch_kv({}); }
  SlowRows(const SlowRows&) = delete;
  SlowRows& operator=(const SlowRows&) = delete;

 private:
  static void on_rows(void* context, const step::KvRows& rows) {
    const auto& self = *static_cast<SlowRows*>(context);
    if (rows.cache_layer == 0) self.life_.clock.advance_ns(rows.n * self.row_ns_);
  }
  SavedLife& life_;
  const u64 row_ns_;
};

TEST_CASE("a conversation that selects: its tokens, and all of its KV") {
  const SmallModel model("llama", "q8_0");
  for (const bool few_frames : {false, true}) {
    CAPTURE(few_frames);
    const test::SavedHow how{
        .few_frames = few_frames, .checkpoint_ms = 1, .select = test::saved_select()};
    SimDisk disk(1);
    SavedLife life(model, how, disk);
    Engine& engine = life.engine();
    const SessionIdx session = kept(life);
    test::first_part(life, session, 300);
    const u32 first_approx_slot = engine.sessions().state(session).approx.first_slot;
    REQUIRE(first_approx_slot >= 300);
    REQUIRE(first_approx_slot < 320);
    settle(life);
    REQUIRE(engine.sessions().feed(session, test::random_ids(2, 400)).has_value());
    read_on(life);
    There there = found_after_kill(model, how, disk);
    CHECK(there.ids == ids_of(life, session));
    CHECK(there.is_cut_off);  // nobody has answered it
    CHECK(there.n_computed > 350);
    // With what was selected cut off, it is exact again.
    REQUIRE(engine.sessions().truncate(session, 297).has_value());
    CHECK_FALSE(engine.sessions().state(session).approx.is_any());
    REQUIRE(engine.sessions().feed(session, test::random_ids(3, 104)).has_value());
    life.generate(session, 3);
    settle(life);
    there = found_after_kill(model, how, disk);
    CHECK(there.ids == ids_of(life, session));
    CHECK(there.n_computed == 403);
  }
}

// As many records as the budget has room for are written, 12 KiB each, and no manifest.
void refuse_until_tomorrow(const test::SavedHow& how, u32 n_prompt) {
  const SmallModel model("llama", "q8_0");
  SimDisk disk(1);
  u32 n_warnings = 0;
  const auto count = [](void* n, LogLevel level, const char* text) {
    const bool is_it = std::strstr(text, "not on disk") != nullptr;
    *static_cast<u32*>(n) += level == LogLevel::warning && is_it ? 1 : 0;
  };
  SavedLife life(model, how, disk, Log(count, &n_warnings, LogLevel::info));
  const SessionIdx session = kept(life), other = test::create(life);
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(1, n_prompt)).has_value());
  life.generate(session, 23);
  settle(life);
  REQUIRE(n_warnings == 1);
  for (u32 i = 0; i < 5; ++i) life.engine().step();
  CHECK(n_warnings == 1);
  CHECK_FALSE(life.engine().has_work());
  CHECK(lab::Probe::tiers(life.engine()).store.store().stats().n_puts ==
        how.daily_write_bytes / 12'288);
  life.clock.advance_ns(86'400'000'000'000);
  REQUIRE(life.engine().sessions().feed(other, test::random_ids(2, 30)).has_value());
  settle(life);
  CHECK(n_warnings == 1);
  CHECK(found_after_kill(model, how, disk).ids == ids_of(life, session));
}

TEST_CASE("an answer that the write budget refuses is told once, and written the next day") {
  refuse_until_tomorrow({.checkpoint_ms = 1'000, .daily_write_bytes = 160'000}, 100);
  refuse_until_tomorrow(
      {.checkpoint_ms = 1'000, .daily_write_bytes = 250'000, .select = test::saved_select()}, 130);
}

}  // namespace
}  // namespace tarn::engine::checkpoint_native_test
