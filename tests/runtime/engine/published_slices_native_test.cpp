// Goal    a kept prompt is read in slices that take 2.5 s at most, however slow its rows get and
//         whatever of that time the disk has, so that at no moment more than 5 s of its work are
//         lost with the process, nor of several that are read at a time. Where a page of rows takes
//         longer than a slice, the unfinished one is published, too, within the write budget; the
//         tail before it is erased then, and who takes the prompt up goes on with its bits.
// Method  an engine over a simulated disk, in virtual time that passes layer by layer, as long as
//         rows of that depth take. In each layer of each step, what is published is held against
//         when the rows were computed; a copy of the disk is taken up at the end of some steps.
#include <doctest/doctest.h>

#include <vector>

#include "tests/runtime/engine/kept_life.h"
#include "tests/support/slow_build.h"

namespace tarn::engine {
namespace {

using test::KeptHow;
using test::KeptLife;
using test::SimDisk;
using test::SmallModel;
using test::There;

constexpr u32 kLayers = 16;
constexpr u32 kPrompt = 900;
constexpr u32 kRowsMax = 256;
constexpr u32 kLongPage = 64;
constexpr u64 kSliceNs = 2'500'000'000;
constexpr u64 kLostNsMax = 5'000'000'000;
// The rows of a slice are planned by those of the one before, which were faster.
constexpr u64 kStepNsMax = kSliceNs + kSliceNs / 5;
constexpr u32 kFirstRows = 16;  // of the first slice, and the fewest that are measured

struct RowNs {
  u64 first = 0, more = 0;  // of the first row, and with each row behind it
  u64 at(u32 slot) const { return first + slot * more; }
};

struct SlowPrompt {
  SessionIdx session = 0;
  RowNs row_ns{};
};

// Prompts of kept sessions, while they are read.
class SlowPrompts {
 public:
  SlowPrompts(KeptLife& life, const KeptHow& how, std::initializer_list<SlowPrompt> prompts,
              u32 n_layers = kLayers)
      : life_(life), page_tokens_(how.page_tokens), n_layers_(n_layers) {
    for (const SlowPrompt& prompt : prompts) {
      prompts_.push_back({.session = prompt.session, .row_ns = prompt.row_ns});
      prompts_.back().n_begun = state_of(prompts_.back()).n_published;
    }
    engine().watch_kv({&SlowPrompts::on_rows, this});
  }
  // A step; its rows.
  u32 step() {
    step_ns_ = life_.clock.now_ns();
    std::vector<u64> revisions;
    for (u32 i = 0; i < prompts_.size(); ++i) {
      revisions.push_back(state(i).revision);
    }
    const u32 n_rows = engine().step().n_rows;
    const u64 took_ns = life_.clock.now_ns() - step_ns_;
    step_ns_max = std::max(step_ns_max, took_ns);
    if (n_rows >= kFirstRows) takes_tail_ = took_ns / n_rows * page_tokens_ > kSliceNs;
    for (u32 i = 0; i < prompts_.size(); ++i) note_step(prompts_[i], revisions[i]);
    return n_rows;
  }
  bool is_saving() const { return life_.open.engine.kv_stream().sessions().is_saving(); }
  bool is_read() const {
    for (const Prompt& prompt : prompts_) {
      if (state_of(prompt).n_computable() > 0) return false;
    }
    return true;
  }
  // Slots of what a manifest on the disk names.
  u32 n_published(u32 i = 0) const { return n_published(prompts_[i]); }
  // Records of the store when nothing is on its way: groups of those, and a manifest.
  u32 n_records_due() const {
    u32 n = 0;
    for (const Prompt& prompt : prompts_) {
      n += (n_published(prompt) + page_tokens_ - 1) / page_tokens_ * n_layers_;
      n += state_of(prompt).revision > 0 ? 1u : 0u;
    }
    return n;
  }
  u32 n_records() const { return life_.open.engine.kv_stream().store().index().n_records(); }
  const Session& state(u32 i = 0) const { return state_of(prompts_[i]); }
  SessionIdx session(u32 i = 0) const { return prompts_[i].session; }
  // Of its own work; others had their time meanwhile.
  u64 lost_ns_max(u32 i = 0) const { return prompts_[i].lost_ns_max; }

  bool has_room = true;  // in the write budget, for all tails
  u64 step_ns_max = 0;
  u32 n_records_off = 0;  // how often the store had other records than are due

 private:
  struct Prompt {
    SessionIdx session = 0;
    RowNs row_ns{};
    u32 n_begun = 0;  // slots of the last publication that has begun
    u64 lost_ns_max = 0;
  };
  Engine& engine() const { return life_.engine(); }
  const Session& state_of(const Prompt& prompt) const {
    return life_.open.engine.session_state(prompt.session);
  }
  u32 n_published(const Prompt& prompt) const {
    const u32 n = state_of(prompt).n_published;
    return is_saving() ? n : std::max(prompt.n_begun, n);
  }

  void note_step(Prompt& prompt, u64 revision) {
    const u32 n_slots = state_of(prompt).sequence.n_slots();
    if (state_of(prompt).revision == revision) {
      if (!is_saving() && has_room) CHECK(state_of(prompt).n_published == prompt.n_begun);
      return;
    }
    prompt.n_begun = takes_tail_ ? n_slots : n_slots / page_tokens_ * page_tokens_;
  }
  static void on_rows(void* context, const KvRows& rows) {
    auto& self = *static_cast<SlowPrompts*>(context);
    u64 all_ns = 0;
    for (const Prompt& prompt : self.prompts_) {
      if (prompt.session != rows.owner) continue;
      for (u32 slot = rows.first_slot; slot < rows.first_slot + rows.n; ++slot) {
        all_ns += prompt.row_ns.at(slot);
      }
    }
    self.life_.clock.advance_ns(all_ns / self.n_layers_);
    if (!self.is_saving()) self.n_records_off += self.n_records() != self.n_records_due() ? 1u : 0u;
    for (Prompt& prompt : self.prompts_) {
      const u32 n_slots = self.state_of(prompt).sequence.n_slots();
      const bool has_rows = rows.owner == prompt.session;
      u64 lost_ns = has_rows ? self.life_.clock.now_ns() - self.step_ns_ : 0;
      for (u32 slot = self.n_published(prompt); slot < n_slots; ++slot) {
        lost_ns += prompt.row_ns.at(slot);
      }
      prompt.lost_ns_max = std::max(prompt.lost_ns_max, lost_ns);
    }
  }

  KeptLife& life_;
  const u32 page_tokens_, n_layers_;
  std::vector<Prompt> prompts_;
  u64 step_ns_ = 0;
  bool takes_tail_ = false;
};

SessionIdx keep(KeptLife& life, const char* name = "talk") {
  const SessionIdx session = test::create(life);
  REQUIRE(life.engine().keep(session, name).has_value());
  return session;
}
SessionIdx keep_prompt(KeptLife& life, const char* name = "talk", u32 n_ids = kPrompt) {
  const SessionIdx session = keep(life, name);
  REQUIRE(life.engine().feed(session, test::random_ids(n_ids, n_ids)).has_value());
  return session;
}

// All that is to be computed, and what is to be on disk of it.
void settle(KeptLife& life) {
  while (life.engine().has_work()) life.engine().step();
}

// An op of such rows takes longer than anything that the disk does.
void make_fast(SimDisk& disk) { disk.script.latency_ns_min = disk.script.latency_ns_max = 500; }

TEST_CASE(
    "the slower a kept prompt's rows, the fewer are in a slice, and 5 s of work are the most") {
  const SmallModel model("llama", "q8_0", 1, kLayers);
  for (const u32 page_tokens : {test::kKeptPage, kLongPage}) {
    CAPTURE(page_tokens);
    // A page of 64 takes 2.3 s, and the last ones 6.4.
    constexpr RowNs kRowNs{.first = 35'000'000, .more = 72'000};
    const KeptHow how{.page_tokens = page_tokens, .rows_max = kRowsMax, .publish_ms = 1'000};
    SimDisk disk(1);
    make_fast(disk);
    KeptLife life(model, how, disk);
    SlowPrompts prompt(life, how, {{keep_prompt(life), kRowNs}});
    u32 n_steps = 0, n_rows_first = 0, n_rows_last = 0, n_tails = 0;
    for (; !prompt.is_read(); ++n_steps) {
      const u32 n_rows = prompt.step();
      if (!prompt.is_read()) n_rows_last = n_rows;  // the last slice is a rest
      if (n_steps == 0) n_rows_first = n_rows;
      n_tails += prompt.n_published() % page_tokens != 0 ? 1u : 0u;
      if (n_steps % 8 != 7) continue;
      const There there = test::taken_up(model, how, disk);
      CHECK(there.n_computed >= prompt.n_published());
      CHECK(there.is_cut_off);
    }
    CHECK(n_rows_first == kFirstRows);
    CHECK(n_rows_last < 32);
    CHECK(prompt.step_ns_max <= kStepNsMax);
    CHECK(prompt.lost_ns_max() < kLostNsMax);
    CHECK(prompt.lost_ns_max() > kSliceNs);  // it is measured
    CHECK(prompt.n_records_off == 0);
    CHECK((n_tails > 10) == (page_tokens == kLongPage));
    MESSAGE(n_steps, " steps, the longest of ", prompt.step_ns_max / 1'000'000, " ms, the last of ",
            n_rows_last, " rows; ", n_tails, " tails; ", prompt.lost_ns_max() / 1'000'000,
            " ms lost at most");
  }
}

TEST_CASE("of two kept prompts that are read at a time no more is lost than of one") {
  const SmallModel model("llama", "q8_0", 1, kLayers);
  struct Case {
    u64 one_ms, other_ms;
  };
  for (const Case& c : {Case{38, 38}, Case{100, 100}, Case{100, 10}}) {
    CAPTURE(c.one_ms);
    CAPTURE(c.other_ms);
    const KeptHow how{.page_tokens = kLongPage,
                      .context_tokens = 2048,
                      .rows_max = kRowsMax,
                      .publish_ms = 1'000};
    SimDisk disk(1);
    make_fast(disk);
    KeptLife life(model, how, disk);
    const SessionIdx one = keep_prompt(life, "talk", 500), other = keep_prompt(life, "other", 460);
    SlowPrompts prompts(
        life, how,
        {{one, {.first = c.one_ms * 1'000'000}}, {other, {.first = c.other_ms * 1'000'000}}});
    while (!prompts.is_read()) prompts.step();
    CHECK(prompts.step_ns_max <= kStepNsMax);
    CHECK(prompts.n_records_off == 0);
    for (const u32 i : {0u, 1u}) {
      CAPTURE(i);
      CHECK(prompts.lost_ns_max(i) < kLostNsMax);
      CHECK(prompts.lost_ns_max(i) > kSliceNs / 2);
    }
    MESSAGE("at most ", prompts.lost_ns_max(0) / 1'000'000, " and ",
            prompts.lost_ns_max(1) / 1'000'000, " ms lost");
  }
}

// Its pages are published now and then, and the prompt's then wait for the next step.
TEST_CASE("beside kept sessions that generate a prompt loses no more") {
  const SmallModel model("llama", "q8_0", 1, kLayers);
  struct Case {
    u64 row_ms;
    u32 n_writers;
  };
  for (const Case& c : {Case{70, 1}, Case{120, 1}, Case{120, 2}}) {
    CAPTURE(c.row_ms);
    CAPTURE(c.n_writers);
    const KeptHow how{.context_tokens = 2048, .rows_max = kRowsMax, .publish_ms = 1'000};
    SimDisk disk(1);
    make_fast(disk);
    KeptLife life(model, how, disk);
    std::vector<SessionIdx> writers;
    for (const char* name : {"other", "third"}) {
      if (writers.size() < c.n_writers) writers.push_back(keep_prompt(life, name, 40));
    }
    settle(life);
    for (const SessionIdx writer : writers) {
      REQUIRE(life.engine().generate(writer, {.max_tokens = 500, .ignore_end = true}));
    }
    const RowNs row_ns{.first = c.row_ms * 1'000'000};
    SlowPrompts prompts(life, how,
                        {{keep_prompt(life), row_ns}, {writers[0], {.first = 1'000'000}}});
    u32 n_pages = 0;
    while (prompts.state(0).n_computable() > 0) {
      const u32 n_before = prompts.n_published(1);
      prompts.step();
      n_pages += prompts.n_published(1) > n_before ? 1u : 0u;
      Event event;
      char text[256];
      for (const SessionIdx writer : writers) {
        while (life.engine().take_event(writer, &event, text)) {
        }
      }
    }
    CHECK(n_pages >= 2);
    CHECK(prompts.lost_ns_max() < kLostNsMax);
    CHECK(prompts.lost_ns_max() > kSliceNs);
    MESSAGE(n_pages, " pages of the other, ", prompts.lost_ns_max() / 1'000'000,
            " ms lost at most");
  }
}

TEST_CASE("a prompt that is read beside others has its turn, kept or not") {
  const SmallModel model("llama", "q8_0");
  const KeptHow how{.context_tokens = 4096, .rows_max = 32, .publish_ms = 1'000};
  SimDisk disk(1);
  make_fast(disk);
  KeptLife life(model, how, disk);
  const SessionIdx one = keep_prompt(life), unkept = test::create(life);
  REQUIRE(life.engine().feed(unkept, test::random_ids(3, kPrompt)).has_value());
  const SessionIdx other = keep_prompt(life, "other");
  constexpr RowNs kRowNs{.first = 140'000'000};
  SlowPrompts prompts(life, how, {{one, kRowNs}, {other, kRowNs}}, 2);
  for (u32 n_steps = 0; n_steps < 30; ++n_steps) prompts.step();
  for (const SessionIdx session : {one, unkept, other}) {
    CAPTURE(session);
    CHECK(life.engine().session_state(session).sequence.n_slots() > 200);
  }
}

TEST_CASE("rows that are read beside a kept prompt's make its slices no longer") {
  const SmallModel model("llama", "q8_0");
  const KeptHow how{.context_tokens = 4096, .rows_max = kRowsMax, .publish_ms = 1'000};
  SimDisk disk(1);
  make_fast(disk);
  KeptLife life(model, how, disk);
  const SessionIdx unkept = test::create(life);
  constexpr u32 kModelLayers = 2;
  SlowPrompts prompts(life, how,
                      {{keep_prompt(life), {.first = 100'000'000}}, {unkept, {.first = 2'000'000}}},
                      kModelLayers);
  u32 n_rows_max = 0;
  for (u32 n_steps = 0; n_steps < 20; ++n_steps) {
    if (n_steps % 8 == 3) {
      REQUIRE(life.engine().feed(unkept, test::random_ids(n_steps, 600)).has_value());
    }
    const u32 n_before = prompts.state(0).sequence.n_slots();
    prompts.step();
    n_rows_max = std::max(n_rows_max, prompts.state(0).sequence.n_slots() - n_before);
  }
  CHECK(prompts.state(1).sequence.n_slots() > 1000);
  CHECK(n_rows_max >= 20);
  CHECK(n_rows_max <= 30);
}

TEST_CASE("what the write budget has for full pages is not spent on unfinished ones") {
  const SmallModel model("llama", "q8_0", 1, kLayers);
  constexpr RowNs kRowNs{.first = 100'000'000};
  // 14 pages of 16 groups, 36 KiB each; with all tails it would be 40 MB.
  const KeptHow how{.page_tokens = kLongPage,
                    .rows_max = kRowsMax,
                    .publish_ms = 1'000,
                    .daily_write_bytes = 14'000'000};
  SimDisk disk(1);
  make_fast(disk);
  u32 n_warnings = 0;
  const auto count = [](void* n, LogLevel level, const char*) {
    *static_cast<u32*>(n) += level == LogLevel::warning ? 1 : 0;
  };
  KeptLife life(model, how, disk, Log(count, &n_warnings, LogLevel::info));
  SlowPrompts prompt(life, how, {{keep_prompt(life), kRowNs}});
  prompt.has_room = false;
  u32 n_tails = 0;
  while (!prompt.is_read()) {
    prompt.step();
    n_tails += prompt.state().n_published % kLongPage != 0 ? 1u : 0u;
  }
  CHECK(n_tails > 3);
  CHECK(n_tails < 20);
  CHECK(n_warnings == 0);
  CHECK(prompt.state().n_published >= 13 * kLongPage);
  CHECK(life.engine().kv_stream().store().stats().bytes_written <= how.daily_write_bytes);
}

TEST_CASE("nor what it has for those of another session") {
  const SmallModel model("llama", "q8_0", 1, kLayers);
  constexpr RowNs kRowNs{.first = 100'000'000};
  const KeptHow how{.page_tokens = kLongPage,
                    .context_tokens = 2048,
                    .rows_max = kRowsMax,
                    .publish_ms = 1'000,
                    .daily_write_bytes = 14'000'000};
  SimDisk disk(1);
  make_fast(disk);
  KeptLife life(model, how, disk);
  const SessionIdx one = keep_prompt(life, "talk", 450), other = keep_prompt(life, "other", 460);
  SlowPrompts prompts(life, how, {{one, kRowNs}, {other, kRowNs}});
  prompts.has_room = false;
  while (!prompts.is_read()) prompts.step();
  settle(life);
  for (const u32 i : {0u, 1u}) {
    CAPTURE(i);
    CHECK(prompts.state(i).n_published >= 6 * kLongPage);
  }
}

// What is said before the prompt, and behind it: it has selected before, where it does.
constexpr u32 kFirstInput = 100, kFirstAnswer = 40, kInput = 500, kAnswer = 30;
void begin(KeptLife& life, SessionIdx session) {
  REQUIRE(life.engine().feed(session, test::random_ids(1, kFirstInput)).has_value());
  life.generate(session, kFirstAnswer, 0.8f);
  settle(life);
}
void go_on(KeptLife& life, SessionIdx session) {
  REQUIRE(life.engine().feed(session, test::random_ids(2, kInput)).has_value());
}
std::vector<u32> end(KeptLife& life, SessionIdx session, test::LogitsRecord& logits) {
  life.engine().watch_logits(session, &test::LogitsRecord::on_logits, &logits);
  const std::vector<u32> tokens = life.generate(session, kAnswer, 0.8f);
  settle(life);
  return tokens;
}

TEST_CASE("a prompt that is killed twice goes on with its unfinished page, bit for bit") {
  const SmallModel model("llama", "q8_0", 1, kLayers);
  constexpr RowNs kRowNs{.first = 80'000'000};
  for (const bool selects : {false, true}) {
    if (test::kSlowBuild && !selects) continue;
    CAPTURE(selects);
    KeptHow how{.page_tokens = kLongPage, .rows_max = kRowsMax, .publish_ms = 1'000};
    if (selects) how.select = test::kept_select();
    KeptLife whole(model, how);
    const SessionIdx of_whole = test::create(whole);
    begin(whole, of_whole);
    go_on(whole, of_whole);
    settle(whole);
    test::LogitsRecord want, got;
    const std::vector<u32> want_tokens = end(whole, of_whole, want);

    SimDisk disk(1);
    make_fast(disk);
    u32 n_there = 0;
    for (u32 n_lives = 0; n_lives < 3; ++n_lives) {
      CAPTURE(n_lives);
      SimDisk own = disk;
      own.power_loss({.kept = test::SimKept::all});
      KeptLife life(model, how, own);
      SessionIdx session = 0;
      if (n_lives == 0) {
        session = keep(life);
        begin(life, session);
      } else {
        const auto resumed = life.engine().resume("talk");
        REQUIRE(resumed.has_value());
        CHECK(resumed->n_computed == n_there);
        CHECK(resumed->is_cut_off);
        session = resumed->idx;
      }
      SlowPrompts prompt(life, how, {{session, kRowNs}});
      if (n_lives == 0) go_on(life, session);
      const bool is_killed = n_lives < 2;
      for (u32 n_steps = 0; !prompt.is_read(); ++n_steps) {
        if (is_killed && n_steps > 3 && prompt.n_published() % kLongPage != 0) break;
        prompt.step();
      }
      CHECK(prompt.is_read() != is_killed);
      if (!selects) CHECK(prompt.n_records_off == 0);
      n_there = prompt.n_published();
      disk = own;
      if (is_killed) continue;
      CHECK(end(life, session, got) == want_tokens);
      test::require_same_bits(want, got);
      const There there = test::taken_up(model, how, own);
      CHECK(there.ids.size() == kFirstInput + kFirstAnswer + kInput + kAnswer);
      CHECK(there.n_computed + 1 == there.ids.size());
      CHECK_FALSE(there.is_cut_off);
    }
  }
}

TEST_CASE("what a step waits for the disk is no time for rows of a kept prompt") {
  const SmallModel model("llama", "q8_0");
  constexpr u32 kModelLayers = 2;
  const KeptHow how{.few_frames = true, .publish_ms = 1'000};
  SimDisk disk(1);
  KeptLife life(model, how, disk);
  disk.script.latency_ns_min = disk.script.latency_ns_max = 30'000'000;
  SlowPrompts prompt(life, how, {{keep_prompt(life), {.first = 38'000'000}}}, kModelLayers);
  u64 wait_ns_max = 0;
  u32 n_rows_last = 0;
  while (!prompt.is_read()) {
    const u64 wait_ns = life.engine().counters().disk.wait_ns;
    const u32 n_rows = prompt.step();
    if (!prompt.is_read()) n_rows_last = n_rows;
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
