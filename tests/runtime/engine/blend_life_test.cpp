// Goal    whatever happens to prompts with chunks, an answer has the bits that it has alone, and
//         the books of KV are right: cancels at any step, several blends at once beside plain
//         prompts, cuts, forks, room for one prompt alone, a disk that gives wrong bytes.
// Method  random lives of sessions, from a printed seed, in memory and over a disk with the least
//         memory; every answer that comes to its end is compared with that of an engine of its own.
#include <doctest/doctest.h>

#include <bit>
#include <map>
#include <utility>

#include "runtime/lab/probe.h"
#include "tests/runtime/engine/saved_life.h"
#include "tests/support/seed.h"

namespace tarn::engine::blend_life_test {
namespace {

using reuse::ChunkSpan;
using test::Random;
using test::random_ids;
using test::SavedHow;
using test::SavedLife;
using test::SimDisk;
using test::SmallModel;

constexpr u32 kAnswer = 4;
constexpr u32 kPrompts = 12;  // with chunks; and as many of the same tokens without

struct Prompt {
  std::vector<u32> ids;
  std::vector<ChunkSpan> chunks;
  f32 recompute = 0;
};

// Some of six passages in any order, and a question.
Prompt some_prompt(u32 which) {
  Random random(which % kPrompts);
  Prompt prompt{.ids = {1}, .chunks = {}, .recompute = static_cast<f32>(which % 4) * 0.3f};
  for (u32 i = 0; i < 3; ++i) {
    const u32 passage = static_cast<u32>(random.below(6)), n = 25 + 11 * passage;
    const u32 begin = static_cast<u32>(prompt.ids.size());
    const auto ids = random_ids(passage + 40, n);
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
    if (random.below(4) != 0) prompt.chunks.push_back({begin, begin + n});
  }
  if (which >= kPrompts) prompt.chunks.clear();
  const auto question = random_ids(which % kPrompts, 5);
  prompt.ids.insert(prompt.ids.end(), question.begin(), question.end());
  return prompt;
}

struct Answer {
  std::vector<u32> tokens, bits;
  friend bool operator==(const Answer&, const Answer&) = default;
};

Result<void> generate(Engine& engine, SessionIdx session) {
  GenerateParams params{.max_tokens = kAnswer, .ignore_end = true};
  params.sampler.temperature = 0.8f;
  return engine.sessions().generate(session, params);
}
void ask(Engine& engine, SessionIdx session, const Prompt& prompt) {
  REQUIRE(
      engine.sessions().feed(session, prompt.ids, {prompt.chunks, prompt.recompute}).has_value());
  REQUIRE(generate(engine, session).has_value());
}

// Reads what has come; returns whether the answer has ended.
bool read(Engine& engine, SessionIdx session, Answer* answer, Finish* finish) {
  Event event;
  char text[256];
  while (engine.sessions().take_event(session, &event, text)) {
    if (event.type == EventType::token) {
      answer->tokens.push_back(event.token.token);
      answer->bits.push_back(std::bit_cast<u32>(event.token.logprob));
    }
    if (event.type != EventType::done) continue;
    *finish = event.done.finish;
    return true;
  }
  return false;
}

// Cuts what an answered prompt left to n_cut tokens, and asks for another answer behind more.
bool go_on(Engine& engine, SessionIdx session, u32 n_cut) {
  return engine.sessions().truncate(session, n_cut).has_value() &&
         engine.sessions().feed(session, random_ids(n_cut, 20)).has_value() &&
         generate(engine, session).has_value();
}

// Returns what an engine says that does nothing else; n_cut: behind a cut, 0: without one.
Answer alone(const SmallModel& model, u32 which, u32 n_cut = 0) {
  SavedLife own(model, {});
  const auto session = own.engine().sessions().create();
  ask(own.engine(), *session, some_prompt(which));
  own.open.run();
  Answer answer;
  Finish finish{};
  REQUIRE(read(own.engine(), *session, &answer, &finish));
  if (n_cut == 0) return answer;
  REQUIRE(go_on(own.engine(), *session, n_cut));
  own.open.run();
  answer = {};
  REQUIRE(read(own.engine(), *session, &answer, &finish));
  return answer;
}

void check_books(const Engine& engine) {
  lab::Probe::kv(engine).prefixes().index().check_invariants();
  lab::Probe::kv(engine).pool().check_invariants();
  for (const auto& blend : lab::Probe::blends(engine)) CHECK(blend.is_free());
}

class Lives {
 public:
  Lives(const SmallModel& model, SavedLife& life, u64 seed, u32 n_prompts)
      : model_(model), life_(life), random_(seed), n_prompts_(n_prompts) {}
  void run(u32 n_moves) {
    for (u32 i = 0; i < n_moves; ++i) {
      move();
      for (u64 n = random_.below(4); n > 0 && engine().has_work(); --n) engine().step();
      look();
    }
    life_.open.run();
    look();
    check_books(engine());
  }
  u32 n_equal = 0, n_behind_cuts = 0, n_cancelled = 0;

 private:
  struct Talk {
    bool is_open = false, is_answered = false;
    u32 which = 0, n_cut = 0;
    SessionIdx session = 0;
    Answer answer{};
  };
  Engine& engine() { return life_.engine(); }

  void move() {
    Talk& talk = talks_[random_.below(talks_.size())];
    if (!talk.is_open) {
      const auto priority =
          random_.below(2) == 0 ? step::Priority::background : step::Priority::interactive;
      const auto session = engine().sessions().create({.priority = priority});
      if (!session) return;
      talk = {.is_open = true, .which = static_cast<u32>(random_.below(n_prompts_))};
      talk.session = *session;
      return ask(engine(), talk.session, some_prompt(talk.which));
    }
    if (talk.is_answered) return move_answered(talk);
    const u64 what = random_.below(12);
    if (what == 0) engine().sessions().request_cancel(talk.session);
    if (what == 1) end(talk);
  }
  // Goes on with the session, or with a fork of it.
  void move_answered(Talk& talk) {
    if (random_.below(2) == 0) {
      if (const auto fork = engine().sessions().fork(talk.session)) {
        engine().sessions().destroy(talk.session);
        talk.session = *fork;
      }
    }
    const u32 n_ids = engine().sessions().state(talk.session).tokens.n_ids;
    talk.n_cut = 1 + static_cast<u32>(random_.below(n_ids));
    talk.is_answered = false;
    if (!go_on(engine(), talk.session, talk.n_cut)) end(talk);
  }
  void end(Talk& talk) {
    engine().sessions().destroy(talk.session);
    talk.is_open = false;
  }

  void look() {
    for (Talk& talk : talks_) {
      Finish finish{};
      if (!talk.is_open || !read(engine(), talk.session, &talk.answer, &finish)) continue;
      CAPTURE(talk.which);
      n_cancelled += finish == Finish::cancelled;
      CAPTURE(talk.n_cut);
      const bool is_first = talk.n_cut == 0;
      if (finish == Finish::length) {
        CHECK(talk.answer == wanted(talk));
        ++(is_first ? n_equal : n_behind_cuts);
        talk.is_answered = is_first && random_.below(2) == 0;
      } else {
        // Blended KV of others stays while they are open.
        const Status why = engine().sessions().state(talk.session).last_error.status;
        CHECK((finish == Finish::cancelled || why == Status::would_block));
      }
      talk.answer = {};
      if (!talk.is_answered) end(talk);
    }
  }
  const Answer& wanted(const Talk& talk) {
    const auto [at, is_new] = alone_.try_emplace({talk.which, talk.n_cut});
    if (is_new) at->second = alone(model_, talk.which, talk.n_cut);
    return at->second;
  }

  const SmallModel& model_;
  SavedLife& life_;
  Random random_;
  u32 n_prompts_;
  std::map<std::pair<u32, u32>, Answer> alone_;  // by prompt and cut
  std::array<Talk, 3> talks_{};
};

}  // namespace

// All of them asked before the first step. Returns how many blends ran at a time at most.
u64 ask_together(SavedLife& life, std::span<const u32> which, std::vector<Answer>* answers) {
  Engine& engine = life.engine();
  std::vector<SessionIdx> sessions;
  for (const u32 each : which) {
    const auto session = engine.sessions().create();
    REQUIRE(session.has_value());
    ask(engine, *session, some_prompt(each));
    sessions.push_back(*session);
  }
  answers->assign(which.size(), {});
  u64 n_most = 0;
  for (u64 n_ended = 0; n_ended < which.size();) {
    REQUIRE(engine.has_work());
    engine.step();
    const auto blends = lab::Probe::blends(engine);
    const auto n_free = std::ranges::count_if(blends, &reuse::Blend::is_free);
    n_most = std::max(n_most, blends.size() - static_cast<u64>(n_free));
    for (u64 i = 0; i < which.size(); ++i) {
      Finish finish{};
      n_ended += u64{read(engine, sessions[i], &(*answers)[i], &finish)};
    }
  }
  return n_most;
}

TEST_CASE("prompts with chunks run side by side, with the bits of one by one") {
  const SmallModel model("llama", "q8_0");
  const u32 which[] = {2, 5, 7, 10, 3};
  std::vector<Answer> wanted;
  for (const u32 each : which) wanted.push_back(alone(model, each));
  for (const u32 n_blends : {1u, 2u, 4u}) {
    CAPTURE(n_blends);
    const auto also = [&](Config& config) {
      config.sessions_max = 5;
      config.blends_max = n_blends;
    };
    SavedLife life(model, {.context_tokens = 2400, .rows_max = 24, .also = also});
    std::vector<Answer> answers;
    CHECK(ask_together(life, which, &answers) == n_blends);
    CHECK(answers == wanted);
    check_books(life.engine());
  }
}

TEST_CASE("random lives of prompts with chunks, in memory and over a disk") {
  const SmallModel model("llama", "q8_0");
  const u64 seed = test::seed_from_environment();
  CAPTURE(seed);
  for (const bool on_disk : {false, true}) {
    CAPTURE(on_disk);
    SimDisk disk(seed);
    SavedHow how{.context_tokens = on_disk ? 512u : 800u, .rows_max = 24};
    how.also = [](Config& config) { config.running_max = 2; };
    if (on_disk) {
      how.kv_memory_bytes =
          test::least_kv_memory_bytes(model.path(), test::saved_config(how, /*keeps=*/true));
    }
    auto life = on_disk ? std::make_unique<SavedLife>(model, how, disk)
                        : std::make_unique<SavedLife>(model, how);
    Lives lives(model, *life, seed, 2 * kPrompts);
    lives.run(400);
    CHECK(lives.n_equal > 20);
    CHECK(lives.n_behind_cuts > 5);
    CHECK(lives.n_cancelled > 2);
  }
}

TEST_CASE("chunks on a disk that gives wrong bytes are computed, and the answers are the same") {
  const SmallModel model("llama", "q8_0");
  const u64 seed = test::seed_from_environment();
  CAPTURE(seed);
  Random random(seed);
  SimDisk disk(seed);
  SavedHow how{.context_tokens = 512, .rows_max = 24};
  how.kv_memory_bytes = test::least_kv_memory_bytes(model.path(), test::saved_config(how, true));
  u64 n_damaged = 0, n_errors = 0;
  for (int life_idx = 0; life_idx < 4; ++life_idx) {
    SavedLife life(model, how, disk);
    for (u32 which = 0; which < 8; ++which) {
      CAPTURE(which);
      const auto session = life.engine().sessions().create();
      REQUIRE(session.has_value());
      ask(life.engine(), *session, some_prompt(which));
      Answer answer;
      Finish finish = Finish::none;
      while (finish != Finish::length) {
        if (finish == Finish::error) {  // its own KV was on the disk: it is asked for again
          answer = {};
          const u64 n_ids = some_prompt(which).ids.size();
          REQUIRE(life.engine().sessions().truncate(*session, static_cast<u32>(n_ids)).has_value());
          REQUIRE(generate(life.engine(), *session).has_value());
        }
        while (!read(life.engine(), *session, &answer, &finish)) {
          life.engine().step();
          if (life_idx == 0) continue;
          const u64 n_bits = 8 * disk.file_bytes(test::kSavedFile).size();
          disk.flip_bit(test::kSavedFile, n_bits / 8 + random.below(n_bits - n_bits / 8));
        }
        n_errors += finish == Finish::error;
      }
      CHECK(answer == alone(model, which));
      life.engine().sessions().destroy(*session);
      check_books(life.engine());
    }
    n_damaged += lab::Probe::kv(life.engine()).stats().moved.n_lost;
  }
  MESSAGE(n_damaged, " groups could not be read, ", n_errors, " answers were asked for again");
  CHECK(n_damaged > 0);
}

}  // namespace tarn::engine::blend_life_test
