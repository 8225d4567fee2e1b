// Goal    a row that is dropped within a step, when its session is cancelled, leaves the index as
//         it was: whatever is read and answered next has the bits of a session that was cancelled
//         between two steps. Before, at and after an index's first use and its renewal, with a job
//         under way at the end of an input, by several methods; and over memory and disk.
// Method  a session beside another one, cancelled in the first layer of a step; the same session
//         alone, cancelled in front of that step. How likely each later token was, as bytes.
#include <doctest/doctest.h>

#include <cstring>

#include "tests/runtime/engine/answer_bits.h"
#include "tests/support/sim_disk.h"
#include "tests/support/slow_build.h"

namespace tarn::engine {
namespace {

using test::OpenEngine;
using test::SmallModel;
using test_bits::Answer;
using test_bits::read;

constexpr u32 kSwap = 16;

Config config_of(SelectMethod method, u32 codebooks = 1) {
  Config config = test::small_config();
  config.select = test_bits::few(method, kSwap);
  config.select.codebooks = codebooks;
  config.context_tokens = 2048;
  config.batch_rows_max = 64;
  config.n_threads = 2;
  return config;
}

Answer say(Engine& engine, SessionIdx session, u32 n) {
  REQUIRE(engine.generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
  return read(engine, session);
}

struct Cancel {
  static void on_rows(void* context, const KvRows& rows) {
    auto& self = *static_cast<Cancel*>(context);
    if (rows.cache_layer == 0) self.engine->request_cancel(self.session);
  }
  Engine* engine;
  SessionIdx session;
};

// Inputs that are answered in turn, each with so many tokens; the last answer is cancelled.
struct Turns {
  struct Turn {
    u32 n_input, n_answer;
  };
  std::vector<Turn> turns;
  u32 n_next;  // tokens of the input that follows; 0: a cut by one
};

struct Outcome {
  u32 n_cancelled = 0;  // tokens of the answer that was cancelled
  Answer later{};
};

// Where `beside`, in a step that another session's row is in; else in front of it.
Outcome outcome(OpenEngine& open, const Turns& turns, bool beside) {
  Engine& engine = open.engine;
  const SessionIdx session = open.session_with({}), other = open.session_with({1, 2, 3});
  for (u32 i = 0; i < turns.turns.size(); ++i) {
    REQUIRE(engine.feed(session, test::random_ids(i + 1, turns.turns[i].n_input)).has_value());
    if (i + 1 < turns.turns.size()) say(engine, session, turns.turns[i].n_answer);
  }
  REQUIRE(engine.generate(session, {.ignore_end = true}).has_value());
  while (engine.session_state(session).n_generated < turns.turns.back().n_answer) engine.step();
  Cancel cancel{&engine, session};
  if (beside) {
    REQUIRE(engine.generate(other, {.ignore_end = true}).has_value());
    engine.watch_kv({&Cancel::on_rows, &cancel});
    CHECK(engine.step().n_sequences == 2);
    engine.watch_kv({});
  }
  engine.request_cancel(session);
  Outcome outcome{.n_cancelled = static_cast<u32>(read(engine, session).tokens.size())};
  const u32 n_ids = engine.session_state(session).n_ids;
  if (turns.n_next == 0) REQUIRE(engine.truncate(session, n_ids - 1).has_value());
  REQUIRE(engine.feed(session, test::random_ids(9, turns.n_next)).has_value());
  outcome.later = say(engine, session, 40);
  return outcome;
}

// Returns how many tokens later than the cancel the end was.
u32 require_undisturbed(const std::string& path, const Config& config, Turns turns) {
  const u32 n_answer = turns.turns.back().n_answer;
  OpenEngine open(path, config);
  const Outcome got = outcome(open, turns, /*beside=*/true);
  REQUIRE(got.n_cancelled >= n_answer);
  turns.turns.back().n_answer = got.n_cancelled;
  OpenEngine alone(path, config);
  const Outcome want = outcome(alone, turns, /*beside=*/false);
  CHECK(want.n_cancelled == got.n_cancelled);
  CHECK((want.later == got.later));
  return got.n_cancelled - n_answer;
}

TEST_CASE(
    "a row of a first answer is dropped as if it had not been, but for where the index turns") {
  const SmallModel model("llama", "q4_k");
  for (const SelectMethod method : {SelectMethod::pq, SelectMethod::quest, SelectMethod::random}) {
    if (test::kSlowBuild && method != SelectMethod::pq) continue;
    CAPTURE(kSelectMethodNames[static_cast<u64>(method)]);
    for (const u32 n : {1u, 2u, kSwap - 1, kSwap, kSwap + 1, kSwap + 9}) {
      CAPTURE(n);
      if (test::kSlowBuild && n != kSwap + 1) continue;
      for (const u32 n_next : {1u, 60u}) {
        const u32 n_late =
            require_undisturbed(model.path(), config_of(method), {{{150, n}}, n_next});
        CHECK(n_late == (n == kSwap ? 1 : 0));  // the row that swaps is the n_tokens + kSwap-th
      }
    }
  }
}

TEST_CASE("an index that is triggered by an answer's length, not by its input") {
  const SmallModel model("llama", "f16");
  constexpr u32 kTrigger = 2 * (4 + 8 + 16);  // select.context_min tokens
  for (const u32 n : {kTrigger - 21, kTrigger - 20, kTrigger - 19, kTrigger - 20 + kSwap}) {
    for (const u32 n_next : {0u, 30u}) {
      CAPTURE(n);
      CAPTURE(n_next);
      if (test::kSlowBuild && n != kTrigger - 20) continue;
      const u32 n_late =
          require_undisturbed(model.path(), config_of(SelectMethod::pq), {{{20, n}}, n_next});
      CHECK(n_late == ((n - kTrigger + 20) % kSwap == 0 ? 1 : 0));
    }
  }
}

TEST_CASE("a row is dropped beside a renewal, and beside an input's own codebook") {
  const SmallModel model("llama", "q4_k");
  for (const u32 codebooks : {1u, 2u}) {
    CAPTURE(codebooks);
    for (const u32 n : {1u, 2u, kSwap - 1, kSwap, kSwap + 1}) {
      CAPTURE(n);
      if (test::kSlowBuild && n != kSwap) continue;
      for (const u32 n_next : {0u, 50u}) {
        const Turns turns{{{60, kSwap + 4}, {100, n}}, n_next};
        const u32 n_late =
            require_undisturbed(model.path(), config_of(SelectMethod::pq, codebooks), turns);
        CHECK(n_late == (n == kSwap ? 1 : 0));
      }
    }
  }
}

TEST_CASE("an input that ended while a job was under way ends again behind a dropped row") {
  const SmallModel model("llama", "q4_k");
  for (const u32 codebooks : {1u, 2u}) {
    CAPTURE(codebooks);
    for (const u32 n_next : {0u, 4u, 60u}) {  // to before the swap, and behind it
      if (test::kSlowBuild && n_next != 4) continue;
      const Turns turns{{{150, 3}, {6, 1}}, n_next};
      CHECK(require_undisturbed(model.path(), config_of(SelectMethod::pq, codebooks), turns) == 0);
    }
  }
}

TEST_CASE("over memory and disk a dropped row leaves the bits of both") {
  const SmallModel model("llama", "q8_0");
  for (const SelectMethod method : {SelectMethod::full, SelectMethod::pq}) {
    if (test::kSlowBuild && method == SelectMethod::full) continue;
    CAPTURE(kSelectMethodNames[static_cast<u64>(method)]);
    Config config = config_of(method);
    config.page_tokens = 16;
    config.select.n_sinks = 20;
    config.select.n_local = 70;
    config.select.k = 48;
    const Turns turns{{{500, 30}, {100, 20}}, 50};
    OpenEngine resident(model.path(), config);
    const Outcome want = outcome(resident, turns, /*beside=*/false);
    config.kv_memory_bytes = u64{42} * 8192;
    config.store.quota_bytes = kGiB;
    test::set_text(config.store.path, "store");
    test::SimDisk disk(1);
    VirtualClock clock;
    test::SimIo io(disk, clock, 64);
    OpenEngine streamed(model.path(), config, &clock, &io);
    REQUIRE(streamed.engine.kv_stream().is_on());
    const Outcome got = outcome(streamed, turns, /*beside=*/true);
    CHECK(got.n_cancelled == want.n_cancelled);
    CHECK((got.later == want.later));
  }
}

}  // namespace
}  // namespace tarn::engine
