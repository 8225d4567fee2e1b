// Goal    what a named session has said and computed is on disk soon after, without a save: all
//         tokens of an answer that has ended, also of one that selected, and all KV to the last
//         full page, or to the last slot where it selects. One that was cut off goes on with its
//         bits, wherever its index begins.
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
  REQUIRE(life.engine().autosave(session, "talk").has_value());
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
  const Session& s = life.engine().session_state(session);
  return {s.tokens.ids.begin(), s.tokens.ids.begin() + s.tokens.n_ids};
}

TEST_CASE("an answer that has ended is on disk to its last token") {
  const SmallModel model("llama", "q8_0");
  const test::SavedHow how{.checkpoint_ms = 3'600'000};  // nothing is due while it is written
  SimDisk disk(1);
  SavedLife life(model, how, disk);
  const SessionIdx session = kept(life);
  REQUIRE(life.engine().feed(session, test::random_ids(1, 100)).has_value());
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
    REQUIRE(life.engine().feed(session, test::random_ids(part, 40)).has_value());
    read_on(life);
    REQUIRE(life.engine().session_state(session).state == SessionState::idle);
    const There there = found_after_kill(model, how, disk);
    CHECK(there.ids == ids_of(life, session));
    CHECK(there.n_computed == (40 * (part + 1) - 1) / test::kSavedPage * test::kSavedPage);
    CHECK(there.is_cut_off);
  }
  // What a cancel leaves is not what is to be gone on with.
  life.clock.advance_ns(60'000'000'000);
  REQUIRE(life.engine().feed(session, test::random_ids(9, 40)).has_value());
  life.engine().request_cancel(session);
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
    REQUIRE(life.engine().feed(session, test::random_ids(1, n_ids)).has_value());
    settle(life);
    life.engine().destroy_session(session);
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
    const u32 first_approx_slot = engine.session_state(session).approx.first_slot;
    REQUIRE(first_approx_slot >= 300);
    REQUIRE(first_approx_slot < 320);
    settle(life);
    REQUIRE(engine.feed(session, test::random_ids(2, 400)).has_value());
    read_on(life);
    There there = found_after_kill(model, how, disk);
    CHECK(there.ids == ids_of(life, session));
    CHECK(there.is_cut_off);  // nobody has answered it
    CHECK(there.n_computed > 350);
    // With what was selected cut off, it is exact again.
    REQUIRE(engine.truncate(session, 297).has_value());
    CHECK_FALSE(engine.session_state(session).approx.is_any());
    REQUIRE(engine.feed(session, test::random_ids(3, 104)).has_value());
    life.generate(session, 3);
    settle(life);
    there = found_after_kill(model, how, disk);
    CHECK(there.ids == ids_of(life, session));
    CHECK(there.n_computed == 403);
  }
}

TEST_CASE(
    "with exact answers all of a conversation that selects is kept, and it has the bits of a cut") {
  const SmallModel model("llama", "q8_0");
  for (const bool few_frames : {false, true}) {
    CAPTURE(few_frames);
    test::SavedHow how{
        .few_frames = few_frames, .checkpoint_ms = 1, .select = test::saved_select()};
    how.select.exact_answers = true;
    SimDisk disk(1);
    SavedLife life(model, how, disk), by_hand(model, {.select = test::saved_select()});
    const SessionIdx session = kept(life), cut = test::create(by_hand);
    const std::vector<u32> input = test::random_ids(2, 400);
    CHECK(test::first_part(life, session, 300) == test::first_part(by_hand, cut, 300));
    const u32 first_approx_slot = life.engine().session_state(session).approx.first_slot;
    REQUIRE(first_approx_slot < 320);
    std::vector<u32> ids = ids_of(by_hand, cut);
    ids.erase(ids.begin(), ids.begin() + first_approx_slot);
    ids.insert(ids.end(), input.begin(), input.end());
    test::LogitsRecord got, want;
    lab::Probe(life.engine()).watch_logits(session, &test::LogitsRecord::on_logits, &got);
    lab::Probe(by_hand.engine()).watch_logits(cut, &test::LogitsRecord::on_logits, &want);
    REQUIRE(life.engine().feed(session, input).has_value());
    REQUIRE(by_hand.engine().truncate(cut, first_approx_slot).has_value());
    REQUIRE(by_hand.engine().feed(cut, ids).has_value());
    CHECK(life.generate(session, 30, 0.8f) == by_hand.generate(cut, 30, 0.8f));
    test::require_same_bits(want, got);
    settle(life);
    // The second answer's KV is its own again; all before it is on disk.
    const There there = found_after_kill(model, how, disk);
    CHECK(there.ids == ids_of(life, session));
    CHECK(there.n_computed >= 720 / test::kSavedPage * test::kSavedPage);
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
  REQUIRE(life.engine().feed(session, test::random_ids(1, n_prompt)).has_value());
  life.generate(session, 23);
  settle(life);
  REQUIRE(n_warnings == 1);
  for (u32 i = 0; i < 5; ++i) life.engine().step();
  CHECK(n_warnings == 1);
  CHECK_FALSE(life.engine().has_work());
  CHECK(lab::Probe::tiers(life.engine()).store.store().stats().n_puts ==
        how.daily_write_bytes / 12'288);
  life.clock.advance_ns(86'400'000'000'000);
  REQUIRE(life.engine().feed(other, test::random_ids(2, 30)).has_value());
  settle(life);
  CHECK(n_warnings == 1);
  CHECK(found_after_kill(model, how, disk).ids == ids_of(life, session));
}

TEST_CASE("an answer that the write budget refuses is told once, and written the next day") {
  refuse_until_tomorrow({.checkpoint_ms = 1'000, .daily_write_bytes = 160'000}, 100);
  refuse_until_tomorrow(
      {.checkpoint_ms = 1'000, .daily_write_bytes = 250'000, .select = test::saved_select()}, 130);
}

// The rows between the last full page and the kill were tokens that it had generated.
TEST_CASE(
    "an answer that a kill cuts off at any token of its index' first steps goes on with its bits") {
  const SmallModel model("llama", "q8_0");
  constexpr u32 kInput = 100, kAnswer = 40, kTrigger = 122;
  u32 n_at_trigger = 0;  // with rows before it that were not on disk
  for (u32 checkpoint_ms = 2; checkpoint_ms < 60;
       checkpoint_ms += test::kSlowBuild ? 20 : 2) {  // of a step
    const SelectMethod method = checkpoint_ms % 4 == 0 ? SelectMethod::pq : SelectMethod::quest;
    test::SavedHow how{.checkpoint_ms = checkpoint_ms, .select = test::saved_select()};
    how.select.method = method;
    how.select.index_delay_tokens = 2;
    const auto begin = [&](SavedLife& life, SessionIdx session) {
      REQUIRE(life.engine().feed(session, test::random_ids(1, kInput)).has_value());
      REQUIRE(life.engine().generate(session, {.max_tokens = kAnswer, .ignore_end = true}));
    };
    test::LogitsRecord want;
    SavedLife whole(model, {.select = how.select});
    const SessionIdx of_whole = test::create(whole);
    begin(whole, of_whole);
    while (whole.engine().session_state(of_whole).generation.n_generated == 0)
      whole.engine().step();
    lab::Probe(whole.engine()).watch_logits(of_whole, &test::LogitsRecord::on_logits, &want);
    CHECK(test::read_all(whole.engine(), of_whole).tokens.size() == kAnswer);
    const u32 first_approx_slot = whole.engine().session_state(of_whole).approx.first_slot;
    REQUIRE(first_approx_slot > kInput + 10);
    REQUIRE(first_approx_slot < kInput + kAnswer);

    SimDisk disk(1);
    SavedLife life(model, how, disk);
    const SessionIdx session = kept(life);
    begin(life, session);
    for (u32 n_said = kTrigger - kInput - 3; n_said < kTrigger - kInput + 6; ++n_said) {
      while (life.engine().session_state(session).generation.n_generated < n_said) {
        life.clock.advance_ns(2'000'000);
        life.engine().step();
      }
      CAPTURE(checkpoint_ms);
      CAPTURE(n_said);
      SimDisk image = disk;
      image.power_loss({.kept = test::SimKept::all});
      SavedLife other(model, how, image);
      const auto restored = other.engine().restore("talk");
      if (!restored) continue;  // killed before there was a manifest
      const u32 n_there = restored->n_tokens - kInput;
      REQUIRE(n_there <= n_said);
      n_at_trigger += restored->n_tokens == kTrigger && restored->n_computed + 1 < kTrigger;
      REQUIRE(other.engine().generate(restored->idx,
                                      {.max_tokens = kAnswer - n_there, .ignore_end = true}));
      test::LogitsRecord got;
      const u32 n_left = kAnswer - n_there;
      while (other.engine().session_state(restored->idx).generation.n_generated == 0)
        other.engine().step();
      lab::Probe(other.engine()).watch_logits(restored->idx, &test::LogitsRecord::on_logits, &got);
      CHECK(test::read_all(other.engine(), restored->idx).tokens.size() == n_left);
      CHECK(other.engine().session_state(restored->idx).approx.first_slot == first_approx_slot);
      for (u64 at = 0; at < got.rows.size(); ++at) {
        if (got.rows[at].empty()) continue;
        CAPTURE(at);
        REQUIRE(at < want.rows.size());
        REQUIRE(got.rows[at] == want.rows[at]);
      }
    }
  }
  if (!test::kSlowBuild) CHECK(n_at_trigger > 0);
}

}  // namespace
}  // namespace tarn::engine::checkpoint_native_test
