// Goal    after any inputs, answers and cuts a session knows which token was fed last, and where
//         that input begins; beyond its memory it takes what stands there for one input.
// Method  random lives beside a list with a mark for each token.
#include "runtime/engine/sessions/session.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/seed.h"

namespace tarn::engine::turns_test {
namespace {

struct Marks {
  std::vector<bool> fed{};
  u32 n_fed() const {
    auto n = static_cast<u32>(fed.size());
    while (n > 0 && !fed[n - 1]) --n;
    return n;
  }
  u32 input_begin() const {
    u32 n = n_fed();
    while (n > 0 && fed[n - 1]) --n;
    return n;
  }
};

TEST_CASE("which tokens were fed last follows from the tokens that are left") {
  const u64 seed = test::seed_from_environment();
  CAPTURE(seed);
  test::Random random(seed);
  for (u32 life = 0; life < 300; ++life) {
    Turns turns;
    Marks marks;
    for (u32 i = 0; i < 40; ++i) {
      CAPTURE(i);
      const auto n_ids = static_cast<u32>(marks.fed.size());
      const auto n = static_cast<u32>(random.below(4));
      switch (random.below(4)) {
        case 0:
          turns.feed(n_ids, n);
          marks.fed.insert(marks.fed.end(), n, true);
          break;
        case 1:
        case 2:
          if (n_ids == 0) break;
          marks.fed.insert(marks.fed.end(), n, false);
          break;
        default:
          marks.fed.resize(n_ids - std::min(n_ids, 3 * n));
          turns.truncate(static_cast<u32>(marks.fed.size()));
      }
      REQUIRE(turns.n_fed() == marks.n_fed());
      // A session begins with an input.
      REQUIRE(turns.input_begin() == marks.input_begin());
    }
  }
}

TEST_CASE("what is further back than it remembers is one input") {
  Turns turns;
  constexpr u32 kRounds = Turns::kAnswersMax + 5;
  for (u32 i = 0; i < kRounds; ++i) turns.feed(10 * i, 4);  // and 6 generated
  CHECK(turns.n_fed() == 10 * (kRounds - 1) + 4);
  CHECK(turns.input_begin() == 10 * (kRounds - 1));
  turns.truncate(10 * 8 + 7);  // within an answer that it knows
  CHECK(turns.n_fed() == 10 * 8 + 4);
  CHECK(turns.input_begin() == 10 * 8);
  turns.truncate(17);
  CHECK(turns.n_fed() == 17);
  CHECK(turns.input_begin() == 0);
}

}  // namespace
}  // namespace tarn::engine::turns_test
