// Goal    presence penalty counts every token that a session has generated, over many turns, forks,
//         cuts and restores, and none that was fed.
// Method  a penalty that no logit outweighs: the oracle is that no generated token comes twice, in
//         conversations of more turns and tokens than any window holds; and equal answers of a
//         session that was saved twice and one that never was.
#include <doctest/doctest.h>

#include <set>

#include "tests/runtime/engine/saved_life.h"

namespace tarn::engine::generated_penalties_native_test {
namespace {

using test::create;
using test::SimDisk;
using test::SmallModel;
using Life = test::SavedLife;

std::vector<u32> answer(Life& life, SessionIdx session, u32 n, f32 presence_penalty) {
  GenerateParams params{.max_tokens = n, .ignore_end = true};
  params.sampler.presence_penalty = presence_penalty;
  REQUIRE(life.engine().sessions().generate(session, params).has_value());
  return test::read_all(life.engine(), session).tokens;
}

std::vector<u32> turn(Life& life, SessionIdx session, u32 idx, f32 presence_penalty = 100) {
  REQUIRE(life.engine().sessions().feed(session, test::random_ids(100 + idx, 3)).has_value());
  return answer(life, session, 4, presence_penalty);
}

TEST_CASE("no token is generated twice, however many turns lie between") {
  const SmallModel model("llama", "f16");
  Life life(model, {});
  const SessionIdx plain = create(life), session = create(life);
  std::set<u32> seen, seen_plain;
  constexpr u32 kTurns = 45;  // more than Turns::kAnswersMax, 180 tokens
  for (u32 i = 0; i < kTurns; ++i) {
    for (const u32 token : turn(life, plain, i, 0)) seen_plain.insert(token);
    for (const u32 token : turn(life, session, i)) CHECK(seen.insert(token).second);
  }
  CHECK(seen.size() == 4 * kTurns);
  CHECK(seen_plain.size() < 4 * kTurns);  // the model repeats itself without

  const auto fork = life.engine().sessions().fork(session);
  REQUIRE(fork.has_value());
  std::set<u32> seen_of_fork = seen;
  for (const u32 token : turn(life, *fork, 50)) CHECK(seen_of_fork.insert(token).second);

  // Cut behind its input, it says the same again: what was cut counts no more.
  const std::vector<u32> last = turn(life, session, 51);
  const u32 n_ids = life.engine().sessions().state(session).tokens.n_ids;
  REQUIRE(life.engine().sessions().truncate(session, n_ids - 4).has_value());
  CHECK(answer(life, session, 4, 100) == last);
}

TEST_CASE("what was fed does not count") {
  const SmallModel model("llama", "f16");
  Life life(model, {});
  const SessionIdx plain = create(life), session = create(life);
  const std::vector<u32> prompt = test::random_ids(3, 20);
  REQUIRE(life.engine().sessions().feed(plain, prompt).has_value());
  const u32 best = answer(life, plain, 1, 0)[0];
  const SessionIdx other = create(life);
  for (const SessionIdx each : {session, other}) {
    REQUIRE(life.engine().sessions().feed(each, std::vector<u32>(3, best)).has_value());
    REQUIRE(life.engine().sessions().feed(each, prompt).has_value());
  }
  CHECK(answer(life, session, 1, 100) == answer(life, other, 1, 0));
}

TEST_CASE("a restored session counts what it had generated") {
  const SmallModel model("llama", "f16");
  constexpr u32 kTurns = 12;
  std::vector<std::vector<u32>> want;
  {
    Life whole(model, {});
    const SessionIdx session = create(whole);
    for (u32 i = 0; i < kTurns; ++i) want.push_back(turn(whole, session, i));
  }
  SimDisk disk(1);
  for (u32 begin = 0; begin < kTurns; begin += 4) {  // three processes, one after the other
    Life life(model, {}, disk);
    const SessionIdx session = begin == 0 ? create(life) : life.restore();
    for (u32 i = begin; i < begin + 4; ++i) CHECK(turn(life, session, i) == want[i]);
    REQUIRE(life.engine().sessions().save(session, "talk").has_value());
  }
}

}  // namespace
}  // namespace tarn::engine::generated_penalties_native_test
