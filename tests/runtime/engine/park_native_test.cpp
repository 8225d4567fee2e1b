// Goal    a session that was parked, and taken up by another engine on the same disk, goes on with
//         the bits of one that never was; what the store has lost of it is computed anew, and what
//         does not belong to this model is refused with the field that differs.
// Method  the same calls on an engine with all KV in memory and on two engines, one after the
//         other, over one simulated disk: tails of every kind of length, f16 and q8_0, frames for
//         all and for a part; logits of every position compared as bytes. Then records damaged and
//         evicted, power lost while a prompt is read, and other models.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/support/open_engine.h"
#include "tests/support/sim_disk.h"

namespace tarn::engine {
namespace {

using test::LogitsRecord;
using test::SimDisk;
using test::SimIo;
using test::SmallModel;

constexpr u32 kContext = 1024;
constexpr u32 kPage = 16;
constexpr const char* kFile = "store/sessions.tarn";

struct How {
  KvTypeChoice kv_type = KvTypeChoice::f16;
  bool few_frames = false;
  u32 page_tokens = kPage;
  u32 context_tokens = kContext;
  u32 publish_ms = 0;
  u64 quota_bytes = kGiB;
};

Config config_of(const How& how, bool keeps) {
  Config config = test::small_config();
  config.context_tokens = how.context_tokens;
  config.page_tokens = how.page_tokens;
  config.sessions_max = 3;
  config.batch_rows_max = 64;
  config.kv_type = how.kv_type;
  if (!keeps) return config;
  config.store.sessions = true;
  config.store.publish_ms = how.publish_ms;
  config.store.quota_bytes = how.quota_bytes;
  if (how.few_frames) config.kv_memory_bytes = 28 * 8192;
  test::set_text(config.store.path, "store");
  return config;
}

// An engine without a store, or with a process' own way to the disk.
struct Life {
  Life(const SmallModel& model, const How& how)
      : open(model.path(), config_of(how, /*keeps=*/false)) {}
  Life(const SmallModel& model, const How& how, SimDisk& disk)
      : io(std::make_unique<SimIo>(disk, clock, 64)),
        open(model.path(), config_of(how, /*keeps=*/true), &clock, io.get()) {
    REQUIRE(open.engine.kv_stream().keeps_sessions());
  }
  Engine& engine() { return open.engine; }
  std::vector<u32> generate(SessionIdx session, u32 n, f32 temperature = 0.0f) {
    GenerateParams params{.max_tokens = n, .ignore_end = true};
    params.sampler.temperature = temperature;
    params.sampler.seed = 7;
    REQUIRE(engine().generate(session, params).has_value());
    const test::Said said = test::read_all(engine(), session);
    REQUIRE(said.done.finish == Finish::length);
    return said.tokens;
  }
  SessionIdx resume(const char* name = "talk") {
    const auto resumed = engine().resume(name);
    if (!resumed) FAIL(std::string(resumed.error().hint));
    CHECK(resumed->n_tokens == engine().session_state(resumed->idx).n_ids);
    return resumed->idx;
  }
  Status why_not(const char* name, std::string* field = nullptr) {
    const auto resumed = engine().resume(name);
    REQUIRE_FALSE(resumed.has_value());
    CHECK(std::strlen(resumed.error().hint) > 40);
    if (field != nullptr) *field = resumed.error().detail.c_str();
    CHECK(engine().n_sessions() == 0);
    return resumed.error().status;
  }

  VirtualClock clock;
  std::unique_ptr<SimIo> io;
  test::OpenEngine open;
};

// What is said and computed before the border, and behind it.
std::vector<u32> first_part(Life& life, SessionIdx session, u32 n_prompt) {
  REQUIRE(life.engine().feed(session, test::random_ids(n_prompt, n_prompt)).has_value());
  life.open.run();
  return life.generate(session, 20, 0.8f);
}

struct Second {
  std::vector<u32> tokens, forked;
  LogitsRecord logits, fork_logits;
};
Second second_part(Life& life, SessionIdx session) {
  Second second;
  Engine& engine = life.engine();
  REQUIRE(engine.feed(session, test::random_ids(5, 50)).has_value());
  engine.watch_logits(session, &LogitsRecord::on_logits, &second.logits);
  second.tokens = life.generate(session, 24, 0.8f);
  life.open.run();
  engine.watch_logits(session, nullptr, nullptr);
  const auto fork = engine.fork(session);
  REQUIRE(fork.has_value());
  REQUIRE(engine.truncate(*fork, engine.session_state(*fork).n_ids - 37).has_value());
  REQUIRE(engine.feed(*fork, test::random_ids(6, 20)).has_value());
  engine.watch_logits(*fork, &LogitsRecord::on_logits, &second.fork_logits);
  second.forked = life.generate(*fork, 10);
  life.open.run();
  engine.watch_logits(*fork, nullptr, nullptr);
  engine.destroy_session(*fork);
  return second;
}

SessionIdx create(Life& life) {
  const auto session = life.engine().create_session();
  REQUIRE(session.has_value());
  return *session;
}

// Logits behind the border alone: those before it were not asked for.
void require_same(const Second& want, const Second& got) {
  CHECK(want.tokens == got.tokens);
  CHECK(want.forked == got.forked);
  test::require_same_bits(want.logits, got.logits);
  test::require_same_bits(want.fork_logits, got.fork_logits);
}

TEST_CASE("a parked session goes on in another engine with the bits of one that never was") {
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
          const SessionIdx parked = create(first);
          CHECK(first_part(first, parked, n_prompt) == said);
          const auto saved = first.engine().park(parked, "talk");
          REQUIRE(saved.has_value());
          CHECK(saved->n_tokens == n_prompt + 20);
        }
        Life second(model, how, disk);
        const SessionIdx resumed = second.resume();
        const Session& state = second.engine().session_state(resumed);
        CHECK(state.sequence.n_slots() == n_prompt + 19);
        CHECK(state.state == SessionState::idle);
        CHECK(state.turn_begin == 0);
        CHECK(state.sampler.seed == 7);
        require_same(want, second_part(second, resumed));
        const kv::MoverStats& stats = second.engine().kv_stream().stats();
        CHECK(stats.n_lost == 0);
        CHECK(stats.bytes_loaded > 0);
        second.engine().kv_stream().residency().check_invariants();
      }
    }
  }
}

TEST_CASE("what is on disk is not written again, by the same session or another one") {
  const SmallModel model("llama", "q8_0");
  SimDisk disk(1);
  Life life(model, {}, disk);
  const SessionIdx session = create(life);
  REQUIRE(life.engine().feed(session, test::random_ids(1, 400)).has_value());
  life.open.run();
  const auto first = life.engine().park(session, "talk");
  const auto again = life.engine().park(session, "talk");
  REQUIRE(first.has_value());
  REQUIRE(again.has_value());
  CHECK(first->bytes_written > 2 * 24 * 8192);
  CHECK(again->bytes_written < 3 * 8192);  // the manifest, and zeros over the old one's head
  life.engine().destroy_session(session);
  const SessionIdx other = create(life);
  REQUIRE(life.engine().feed(other, test::random_ids(1, 330)).has_value());
  life.open.run();
  const auto shorter = life.engine().park(other, "other");
  REQUIRE(shorter.has_value());
  CHECK(life.engine().kv_stream().stats().n_known == 2 * (329 / kPage));
  CHECK(shorter->bytes_written < 2 * 3 * 8192 + 3 * 8192);  // its own tail
  CHECK(life.engine().park(other, "talk").has_value());     // the name is free again
  const auto bad = life.engine().park(other, "");
  REQUIRE_FALSE(bad.has_value());
  CHECK(bad.error().status == Status::invalid_request);
  const SessionIdx third = create(life);
  const auto taken = life.engine().keep(third, "talk");
  REQUIRE_FALSE(taken.has_value());
  CHECK(taken.error().status == Status::invalid_request);
}

TEST_CASE("a session of another model, or with other settings, is refused by the field") {
  const SmallModel model("llama", "q8_0"), other("llama", "q8_0", 2);
  SimDisk disk(1);
  {
    Life life(model, {}, disk);
    const SessionIdx session = create(life);
    (void)first_part(life, session, 100);
    REQUIRE(life.engine().park(session, "talk").has_value());
  }
  std::string field;
  {
    Life life(other, {}, disk);
    CHECK(life.why_not("talk", &field) == Status::invalid_request);
    CHECK(field == "model");
    CHECK(life.why_not("nobody", &field) == Status::not_found);
    CHECK(field == "nobody");
  }
  {
    Life life(model, {.page_tokens = 32}, disk);
    CHECK(life.why_not("talk", &field) == Status::invalid_request);
    CHECK(field == "kv.page_tokens");
  }
  {
    Life life(model, {.kv_type = KvTypeChoice::q8_0}, disk);
    CHECK(life.why_not("talk", &field) == Status::invalid_request);
    CHECK(field == "kv.type");
  }
  {
    Life life(model, {.context_tokens = 64}, disk);  // the file keeps its length
    CHECK(life.why_not("talk") == Status::invalid_request);
  }
  Life life(model, {.context_tokens = 2048}, disk);
  CHECK(life.resume() == 0);
  Life none(model, {});
  CHECK(none.engine().resume("talk").error().status == Status::invalid_request);
  CHECK(none.engine().park(create(none), "talk").error().status == Status::invalid_request);
}

// Takes the session up, if it is there, and compares; generates again where a part was lost on the
// way. Returns how many tokens were there; ~0 where it was refused.
u32 check_is_right(const SmallModel& model, SimDisk& disk, const std::vector<u32>& want) {
  Life life(model, {}, disk);
  const auto resumed = life.engine().resume("talk");
  if (!resumed) {
    const Status status = resumed.error().status;
    CHECK((status == Status::not_found || status == Status::io_failed));
    return ~u32{0};
  }
  CHECK(resumed->n_computed <= resumed->n_tokens);
  REQUIRE(life.engine().feed(resumed->idx, test::random_ids(5, 10)).has_value());
  for (u32 i = 0; i < 100; ++i) {
    REQUIRE(life.engine().generate(resumed->idx, {.max_tokens = 12, .ignore_end = true}));
    const test::Said said = test::read_all(life.engine(), resumed->idx);
    if (said.done.finish == Finish::error) {
      CHECK(said.done.status == Status::io_failed);
      CHECK(life.engine().session_state(resumed->idx).n_ids > 0);
      continue;
    }
    CHECK(said.tokens == want);
    return resumed->n_computed;
  }
  FAIL("it never ended well");
  return 0;
}

std::vector<u32> answer_of(const SmallModel& model, u32 n_prompt) {
  Life life(model, {});
  const SessionIdx session = create(life);
  (void)first_part(life, session, n_prompt);
  REQUIRE(life.engine().feed(session, test::random_ids(5, 10)).has_value());
  return life.generate(session, 12);
}

TEST_CASE("a damaged or a missing part is computed anew, or the session refused") {
  const SmallModel model("llama", "q8_0");
  const u32 n_prompt = 200;
  const std::vector<u32> want = answer_of(model, n_prompt);
  SimDisk disk(1);
  {
    Life life(model, {}, disk);
    const SessionIdx session = create(life);
    (void)first_part(life, session, n_prompt);
    REQUIRE(life.engine().park(session, "talk").has_value());
  }
  const std::vector<std::byte> image = disk.file_bytes(kFile);
  const u64 frame_bytes = 3 * kSectorBytes;
  u32 n_whole = 0, n_partly = 0, n_refused = 0;
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 frame = 0; frame < 36; ++frame) {  // each record of the session, head or payload
    CAPTURE(frame);
    const u64 begin = store::kFramesBegin + frame * frame_bytes;
    const u64 bit = (frame % 2 == 0 ? 0 : kSectorBytes) * 8 + random.below(kSectorBytes * 8);
    disk.write_file(kFile, image);
    disk.flip_bit(kFile, begin * 8 + bit);
    const u32 n = check_is_right(model, disk, want);
    n_refused += n == ~u32{0};
    n_whole += n == n_prompt + 19;
    n_partly += n < n_prompt + 19;
  }
  CHECK(n_refused >= 1);
  CHECK(n_whole >= 10);   // found damaged when it was read
  CHECK(n_partly >= 10);  // found missing at the start
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
      REQUIRE(life.engine().park(session, "talk").has_value());
      life.engine().destroy_session(session);
      for (u32 i = 0; i < n_others; ++i) {
        const SessionIdx other = create(life);
        (void)first_part(life, other, 501 + 10 * n_others + i);
        REQUIRE(life.engine().park(other, "other").has_value());
        life.engine().destroy_session(other);
      }
    }
    const u32 n = check_is_right(model, disk, want);
    n_gone += n == ~u32{0};
    n_partly += n < n_prompt + 19;
    n_whole += n == n_prompt + 19;
  }
  CHECK(n_whole >= 1);
  CHECK(n_gone + n_partly >= 1);
}

TEST_CASE("power is lost while a prompt is read: what was published is there, and all is right") {
  const SmallModel model("llama", "q8_0");
  const std::vector<u32> ids = test::random_ids(9, 900);
  std::vector<u32> want;
  {
    Life life(model, {});
    const SessionIdx session = create(life);
    REQUIRE(life.engine().feed(session, ids).has_value());
    want = life.generate(session, 12);
  }
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  u32 n_none = 0, n_partly = 0;
  for (u32 round = 0; round < 12; ++round) {
    CAPTURE(round);
    SimDisk disk(round + 1);
    const How how{.few_frames = round % 2 == 1, .publish_ms = 1};
    std::unique_ptr<SimDisk> after;
    {
      Life life(model, how, disk);
      const SessionIdx session = create(life);
      REQUIRE(life.engine().keep(session, "talk").has_value());
      REQUIRE(life.engine().feed(session, ids).has_value());
      const u64 n_steps = random.below(22);
      for (u64 i = 0; i < n_steps && life.engine().has_work(); ++i) {
        life.clock.advance_ns(1'000'000);
        life.engine().step();
      }
      after = std::make_unique<SimDisk>(disk);
    }
    after->power_loss({.kept = test::SimKept::some, .torn = round % 3 == 0, .seed = round + 1});
    Life life(model, how, *after);
    const auto resumed = life.engine().resume("talk");
    SessionIdx session = 0;
    if (resumed) {
      session = resumed->idx;
      CHECK(resumed->is_cut_off);
      CHECK(resumed->n_tokens == ids.size());
      n_partly += resumed->n_computed > 0;
    } else {
      CHECK(resumed.error().status == Status::not_found);
      ++n_none;
      session = create(life);
      REQUIRE(life.engine().feed(session, ids).has_value());
    }
    CHECK(life.generate(session, 12) == want);
  }
  CHECK(n_none >= 1);
  CHECK(n_partly >= 4);
}

}  // namespace
}  // namespace tarn::engine
