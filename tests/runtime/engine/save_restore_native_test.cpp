// Goal    a session that was saved, and restored by another engine on the same disk, goes on with
//         the bits of one that never was; what does not belong to this model is refused with the
//         field that differs; the store keeps as many sessions as it was told. (Damage and lost
//         power: sim/reuse_random, sim/select_random, kills.)
// Method  the same calls on an engine with all KV in memory and on two engines, one after the
//         other, over one simulated disk: tails of every kind of length, f16 and q8_0, frames for
//         all and for a part; logits of every position compared as bytes. Then records evicted, and
//         other models.
#include <doctest/doctest.h>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/kv_invariants.h"

namespace tarn::engine::save_restore_native_test {
namespace {

using test::create;
using test::first_part;
using test::require_same;
using test::Second;
using test::second_part;
using test::SimDisk;
using test::SmallModel;
using How = test::SavedHow;
using Life = test::SavedLife;

constexpr u32 kPage = test::kSavedPage;

TEST_CASE("a saved session goes on in another engine with the bits of one that never was") {
  const SmallModel model("llama", "q8_0");
  for (const KvTypeChoice kv_type : {KvTypeChoice::f16, KvTypeChoice::q8_0}) {
    for (const bool few_frames : {false, true}) {
      if (few_frames && kv_type == KvTypeChoice::q8_0) continue;
      // What the second generation sees in the KV: 19 tokens more, a page with one slot, with none,
      // with all but one.
      for (const u32 n_prompt : {3u, 13u, 14u, 477u, 476u, 490u}) {
        CAPTURE(kv_type);
        CAPTURE(few_frames);
        CAPTURE(n_prompt);
        const How how{.kv_type = kv_type, .few_frames = few_frames};
        Life whole(model, how);
        const SessionIdx session = create(whole);
        const std::vector<u32> said = first_part(whole, session, n_prompt);
        const Second want = second_part(whole, session);
        SimDisk disk(1);
        {
          Life first(model, how, disk);
          const SessionIdx source = create(first);
          CHECK(first_part(first, source, n_prompt) == said);
          REQUIRE(first.engine().sessions().save(source, "talk").has_value());
        }
        Life second(model, how, disk);
        const SessionIdx restored = second.restore();
        const Session& state = second.engine().sessions().state(restored);
        CHECK(state.sequence.n_slots() == n_prompt + 19);
        CHECK(state.state == SessionState::idle);
        CHECK(state.tokens.turn_begin == 0);
        require_same(want, second_part(second, restored));
        const kv::MoverStats& stats = lab::Probe::tiers(second.engine()).mover.stats();
        CHECK(stats.n_lost == 0);
        CHECK(stats.bytes_loaded > 0);
        test::check_invariants(lab::Probe::tiers(second.engine()).residency);
      }
    }
  }
}

TEST_CASE("what is on disk is not written again, by the same session or another one") {
  const SmallModel model("llama", "q8_0");
  SimDisk disk(1);
  Life life(model, {}, disk);
  const SessionIdx session = create(life);
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(1, 400)).has_value());
  life.open.run();
  const auto saved_bytes = [&](SessionIdx idx, const char* name) {
    const store::Store& store = lab::Probe::tiers(life.engine()).store.store();
    const u64 before = store.stats().bytes_written;
    REQUIRE(life.engine().sessions().save(idx, name).has_value());
    return store.stats().bytes_written - before;
  };
  CHECK(saved_bytes(session, "talk") > 2 * 24 * 8192);
  CHECK(saved_bytes(session, "talk") < 3 * 8192);  // the manifest, and a grave for the old one
  life.engine().sessions().destroy(session);
  const SessionIdx other = create(life);
  REQUIRE(life.engine().sessions().feed(other, test::random_ids(1, 330)).has_value());
  life.open.run();
  CHECK(saved_bytes(other, "other") < 2 * 3 * 8192 + 3 * 8192);  // its own tail
  CHECK(life.engine().sessions().state(other).generation.reused.n_tokens() == 330 / kPage * kPage);
  CHECK(life.engine().sessions().save(other, "talk").has_value());  // the name is free again
  const auto bad = life.engine().sessions().save(other, "");
  REQUIRE_FALSE(bad.has_value());
  CHECK(bad.error().status == Status::invalid_request);
  const SessionIdx third = create(life);
  const auto taken = life.engine().sessions().autosave(third, "talk");
  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().status == Status::invalid_request);
}

// The disk takes its first n calls of a save and answers none after it. True where those were
// enough.
bool saves_over_silence(const SmallModel& model, u32 n_prompt, u64 n_calls,
                        const std::vector<u32>& want) {
  CAPTURE(n_prompt);
  CAPTURE(n_calls);
  SimDisk disk(1);
  Life life(model, {}, disk);
  const SessionIdx session = create(life);
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(1, n_prompt)).has_value());
  life.open.run();
  disk.script.faults = {
      {.fault = test::SimFault::never, .first_call = disk.n_calls() + n_calls, .n_calls = ~u64{0}}};
  const auto saved = life.engine().sessions().save(session, "talk");
  if (!saved) {
    CHECK(saved.error().status == Status::io_failed);
    CHECK(lab::Probe::tiers(life.engine()).store.store().mode() == store::Mode::off);
    const auto again = life.engine().sessions().save(session, "talk");
    REQUIRE_FALSE(again.has_value());
    CHECK(again.error().status == Status::io_failed);
    CHECK_FALSE(life.engine().sessions().restore("other").has_value());
    // A tail that the disk still has would be written to.
    if (n_prompt % kPage == 1) CHECK(life.generate(session, 20) == want);
  }
  disk.script.faults.clear();
  life.io->let_stuck_go();
  return saved.has_value();
}

TEST_CASE("a disk that does not answer ends a save, and the session goes on in memory") {
  const SmallModel model("llama", "q8_0");
  for (const u32 n_prompt : {49u, 60u}) {  // three pages of KV; and a tail
    Life whole(model, {});
    const SessionIdx session = create(whole);
    REQUIRE(whole.engine().sessions().feed(session, test::random_ids(1, n_prompt)).has_value());
    const std::vector<u32> want = whole.generate(session, 20);
    u64 n_calls = 0;
    while (!saves_over_silence(model, n_prompt, n_calls, want)) ++n_calls;
    CHECK(n_calls >= 2 * 3 + 4);  // payloads, their sync and heads, the manifest, its syncs
  }
}

TEST_CASE("a session of another model is refused by name, one with other settings computed anew") {
  const SmallModel model("llama", "q8_0"), other("llama", "q8_0", 2);
  SimDisk disk(1);
  {
    Life life(model, {}, disk);
    const SessionIdx session = create(life);
    (void)first_part(life, session, 100);
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
  }
  std::string field;
  {
    Life life(other, {}, disk);
    CHECK(life.why_not("talk", &field) == Status::invalid_request);
    CHECK(field.starts_with("was saved with model = "));
    CHECK(life.why_not("nobody", &field) == Status::not_found);
    CHECK(field == "nobody");
  }
  {
    Life life(model, {.page_tokens = 32}, disk);
    CHECK(life.engine().sessions().restore("talk")->n_computed == 0);
  }
  {
    Life life(model, {.kv_type = KvTypeChoice::q8_0}, disk);
    CHECK(life.engine().sessions().restore("talk")->n_computed == 0);
  }
  {
    Life life(model, {.context_tokens = 64}, disk);  // the file keeps its length
    CHECK(life.why_not("talk") == Status::invalid_request);
  }
  Life life(model, {.context_tokens = 2048}, disk);
  CHECK(life.restore() == 0);
  Life none(model, {});
  CHECK(none.engine().sessions().restore("talk").error().status == Status::invalid_request);
  CHECK(none.engine().sessions().save(create(none), "talk").error().status ==
        Status::invalid_request);
}

// Takes the session up, if it is there, and compares; generates again where a part was lost on the
// way. Returns how many tokens were there; ~0 where it was refused.
u32 check_is_right(const SmallModel& model, SimDisk& disk, const std::vector<u32>& want,
                   const How& how = {}) {
  Life life(model, how, disk);
  const auto restored = life.engine().sessions().restore("talk");
  if (!restored) {
    const Status status = restored.error().status;
    CHECK((status == Status::not_found || status == Status::io_failed));
    return ~u32{0};
  }
  CHECK(restored->n_computed <= restored->n_tokens);
  REQUIRE(life.engine().sessions().feed(restored->idx, test::random_ids(5, 10)).has_value());
  for (u32 i = 0; i < 100; ++i) {
    REQUIRE(
        life.engine().sessions().generate(restored->idx, {.max_tokens = 12, .ignore_end = true}));
    const test::Said said = test::read_all(life.engine(), restored->idx);
    if (said.done.finish == Finish::error) {
      CHECK(said.done.status == Status::io_failed);
      CHECK(life.engine().sessions().state(restored->idx).tokens.n_ids > 0);
      continue;
    }
    CHECK(said.tokens == want);
    return restored->n_computed;
  }
  FAIL("it never ended well");
  return 0;
}

std::vector<u32> answer_of(const SmallModel& model, u32 n_prompt) {
  Life life(model, {});
  const SessionIdx session = create(life);
  (void)first_part(life, session, n_prompt);
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(5, 10)).has_value());
  return life.generate(session, 12);
}

TEST_CASE("a session that gave way to others is gone, or computed anew") {
  const SmallModel model("llama", "q8_0");
  const u32 n_prompt = 500;
  const std::vector<u32> want = answer_of(model, n_prompt);
  SimDisk disk(1);
  const How how{.quota_bytes = 260 * 3 * kSectorBytes};
  u32 n_gone = 0, n_partly = 0, n_whole = 0;
  for (u32 n_others = 0; n_others < 6; ++n_others) {
    {
      Life life(model, how, disk);
      const SessionIdx session = create(life);
      (void)first_part(life, session, n_prompt);
      REQUIRE(life.engine().sessions().save(session, "talk").has_value());
      life.engine().sessions().destroy(session);
      for (u32 i = 0; i < n_others; ++i) {
        const SessionIdx other = create(life);
        (void)first_part(life, other, 501 + 10 * n_others + i);
        REQUIRE(life.engine().sessions().save(other, "other").has_value());
        life.engine().sessions().destroy(other);
      }
    }
    const u32 n = check_is_right(model, disk, want, how);
    n_gone += n == ~u32{0};
    n_partly += n < n_prompt + 19;
    n_whole += n == n_prompt + 19;
  }
  CHECK(n_whole >= 1);
  CHECK(n_gone + n_partly >= 1);
}

// Of the warnings that sessions gave way, how many they name together.
struct GaveWay {
  u64 n_sessions = 0, n_warnings = 0;
  static void take(void* context, LogLevel level, const char* text) {
    const char* found = std::strstr(text, " kept sessions gave way");
    if (found == nullptr) return;
    CHECK((level == LogLevel::warning));
    auto& self = *static_cast<GaveWay*>(context);
    self.n_sessions += std::strtoull(text, nullptr, 10);
    ++self.n_warnings;
  }
};

TEST_CASE("sessions that gave way to newer ones are told in the log, each once") {
  const SmallModel model("llama", "q8_0");
  SimDisk disk(1);
  GaveWay told;
  Life life(model, {.quota_bytes = 260 * 3 * kSectorBytes}, disk,
            Log(&GaveWay::take, &told, LogLevel::info));
  constexpr u32 kSessions = 60;
  const auto name_of = [](u32 i) { return "talk " + std::to_string(i); };
  u32 n_before = 0;  // kept before one was told
  for (u32 i = 0; i < kSessions; ++i) {
    const SessionIdx session = create(life);
    REQUIRE(life.engine().sessions().feed(session, test::random_ids(700 + i, 90)).has_value());
    life.open.run();
    REQUIRE(life.engine().sessions().save(session, name_of(i)).has_value());
    REQUIRE(life.engine()
                .sessions()
                .save(session, name_of(i))
                .has_value());  // a replaced one does not count
    life.engine().sessions().destroy(session);
    n_before += told.n_sessions == 0;
  }
  u64 n_gone = 0;
  for (u32 i = 0; i < kSessions; ++i) {
    const auto restored = life.engine().sessions().restore(name_of(i));
    n_gone += !restored.has_value();
    if (restored) life.engine().sessions().destroy(restored->idx);
    if (!restored) CHECK(restored.error().status == Status::not_found);
  }
  CHECK(n_before > 5);
  CHECK(n_gone > 5);
  CHECK(told.n_sessions == n_gone);
  CHECK(told.n_warnings > 1);
}

TEST_CASE("as many sessions stay as the store was told to keep, not as the context is long") {
  const SmallModel model("llama", "q8_0");
  constexpr u32 kSessions = 40, kTokens = 90, kPages = ceil_div(kTokens, test::kSavedPage);
  const auto name_of = [](u32 i) { return "talk " + std::to_string(i); };
  struct Case {
    const char* name;
    u64 kept_tokens;
    bool all_stay;
  };
  constexpr Case kCases[] = {
      {"by default", 0, false},
      {"all of them", u64{kSessions} * kPages * test::kSavedPage, true},
      {"a quarter of them", u64{kSessions} * kPages * test::kSavedPage / 4, false},
  };
  for (const Case& c : kCases) {
    const std::string name = c.name;
    CAPTURE(name);
    SimDisk disk(1);
    const How how{.kept_tokens = c.kept_tokens};
    {
      Life life(model, how, disk);
      for (u32 i = 0; i < kSessions; ++i) {
        const SessionIdx session = create(life);
        REQUIRE(
            life.engine().sessions().feed(session, test::random_ids(700 + i, kTokens)).has_value());
        life.open.run();
        REQUIRE(life.engine().sessions().save(session, name_of(i)).has_value());
        life.engine().sessions().destroy(session);
      }
    }
    Life life(model, how, disk);
    u32 n_whole = 0;
    for (u32 i = 0; i < kSessions; ++i) {
      const auto restored = life.engine().sessions().restore(name_of(i));
      if (!restored) continue;
      n_whole += restored->n_computed == kTokens - 1;
      life.engine().sessions().destroy(restored->idx);
    }
    MESSAGE(name << ": " << n_whole << " of " << kSessions << " stayed");
    CHECK((n_whole == kSessions) == c.all_stay);
    CHECK(n_whole >= std::min(kSessions, static_cast<u32>(c.kept_tokens / kTokens)));
  }
}

}  // namespace
}  // namespace tarn::engine::save_restore_native_test
