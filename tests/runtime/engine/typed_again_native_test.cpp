// Goal    a command that is typed again is answered as the first time: after a kill at any step,
//         under the same name or another one, over a store that holds the same text already, with
//         no more memory for KV than the plan asks for. No answer differs, none is refused.
// Method  lives on one simulated disk. The first is cut off at a drawn step, by going on with the
//         disk as it was then. The same command follows, then the same text under another name, and
//         a text that shares its beginning. An engine with all KV in memory says what is right.
#include <doctest/doctest.h>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"

namespace tarn::engine::typed_again_native_test {
namespace {

using test::SavedHow;
using test::SavedLife;
using test::SimDisk;
using test::SmallModel;

constexpr u32 kPrompt = 600;
constexpr u32 kAnswer = 20;
constexpr u32 kStepsMax = 10'000;

struct Case {
  const char* name;
  u32 rows_max;
  u32 page_tokens;
  bool selects;
};

// clang-format off
constexpr Case kCases[] = {
    // name                              rows  page  selects
    {"slices of a page",                   16,   16,  false},
    {"slices of four pages",               64,   16,  false},
    {"slices of half the prompt",         300,   16,  false},
    {"slices of the whole prompt",        600,   16,  false},
    {"large pages",                       300,   64,  false},
    {"slices of half the prompt, by pq",  300,   16,   true},
};
// clang-format on

std::vector<u32> document(u32 n_shared) {
  std::vector<u32> ids = test::random_ids(11, kPrompt);
  const std::vector<u32> others = test::random_ids(12, kPrompt);
  std::copy(others.begin() + n_shared, others.end(), ids.begin() + n_shared);
  return ids;
}

// What a host does for one command: it takes the session up or begins it, reads, answers, parks.
// False where the life was ended before, at step `n_steps` of it.
struct Command {
  SavedLife& life;
  const char* name;
  std::vector<u32> ids;
  u32 n_steps = kStepsMax;
  std::vector<u32> answer{};
  u32 n_reused = 0;  // tokens

  bool run() {
    Engine& engine = life.engine();
    CHECK_FALSE(lab::Probe::tiers(engine).store.has_lost_records());  // a kill damages nothing
    SessionIdx session = 0;
    bool is_new = true;
    if (const auto restored = engine.restore(name)) {
      session = restored->idx;
      is_new = false;
      const Session& s = engine.session_state(session);
      const u32 n_said = restored->n_tokens - std::min<u32>(restored->n_tokens, kPrompt);
      const bool goes_on = restored->is_cut_off && restored->n_drawn == n_said;
      if (n_said > 0 && !goes_on) REQUIRE(engine.truncate(session, kPrompt).has_value());
      if (goes_on)
        answer.assign(s.tokens.ids.begin() + kPrompt, s.tokens.ids.begin() + kPrompt + n_said);
    } else {
      REQUIRE(restored.error().status == Status::not_found);
      session = test::create(life);
      REQUIRE(engine.autosave(session, name).has_value());
      REQUIRE(engine.feed(session, ids).has_value());
    }
    CAPTURE(is_new);
    const u32 n_left = kAnswer - static_cast<u32>(answer.size());
    const GenerateParams params{
        .max_tokens = n_left, .ignore_end = true, .first_draw = static_cast<u32>(answer.size())};
    if (n_left > 0) REQUIRE(engine.generate(session, params).has_value());
    Event event;
    char text[256];
    for (bool is_done = n_left == 0; !is_done;) {
      while (!is_done && engine.take_event(session, &event, text)) {
        if (event.type == EventType::token) answer.push_back(event.token.token);
        is_done = event.type == EventType::done;
        if (is_done) REQUIRE(event.done.finish == Finish::length);
        if (is_done) n_reused = event.done.reused.n_from_disk;
      }
      if (is_done) break;
      if (n_steps-- == 0) return false;
      engine.step();
    }
    REQUIRE(engine.save(session, name).has_value());
    return true;
  }
};

std::vector<u32> right_answer(const SmallModel& model, const SavedHow& how, u32 n_shared) {
  SavedLife life(model, how);
  const SessionIdx session = test::create(life);
  REQUIRE(life.engine().feed(session, document(n_shared)).has_value());
  return life.generate(session, kAnswer);
}

TEST_CASE("a command typed again is answered at the plan's least memory over the same text") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const SmallModel model("llama", "q8_0");
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    SavedHow how{.page_tokens = c.page_tokens, .rows_max = c.rows_max, .checkpoint_ms = 1};
    if (c.selects) how.select = test::saved_select();
    const u32 n_shared = kPrompt / 2;
    const std::vector<u32> want = right_answer(model, how, kPrompt);
    const std::vector<u32> want_other = right_answer(model, how, n_shared);
    how.kv_memory_bytes = test::least_kv_memory_bytes(model.path(), test::saved_config(how, true));
    for (u32 round = 0; round < 4; ++round) {
      SimDisk first(random.next()), disk(1);
      {
        SavedLife life(model, how, first);
        Command killed{.life = life, .name = "s", .ids = document(kPrompt)};
        killed.n_steps = static_cast<u32>(random.below(kPrompt / c.rows_max + kAnswer + 2));
        (void)killed.run();
        disk = first;
      }
      disk.power_loss({.kept = test::SimKept::all});
      {
        SavedLife life(model, how, disk);
        Command repeated{.life = life, .name = "s", .ids = document(kPrompt)};
        REQUIRE(repeated.run());
        CHECK(repeated.answer == want);
      }
      for (const char* name : {"t", "u"}) {
        CAPTURE(name);
        SavedLife life(model, how, disk);
        Command other{.life = life, .name = name, .ids = document(kPrompt)};
        REQUIRE(other.run());
        CHECK(other.answer == want);
        CHECK(other.n_reused == kPrompt / c.page_tokens * c.page_tokens);
      }
      SavedLife life(model, how, disk);
      Command half{.life = life, .name = "v", .ids = document(n_shared)};
      REQUIRE(half.run());
      CHECK(half.answer == want_other);
    }
  }
}

}  // namespace
}  // namespace tarn::engine::typed_again_native_test
