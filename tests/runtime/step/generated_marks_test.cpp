// Goal    the marks say of every token whether it was generated, and name the answers.
// Method  random lives of feeds, answers and cuts beside a list of flags.
#include "runtime/step/generated_marks.h"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::step::generated_marks_test {
namespace {

TEST_CASE("marks and answers are those of a list of flags") {
  test::Random random(3);
  for (u32 round = 0; round < 200; ++round) {
    CAPTURE(random.seed());
    constexpr u32 kTokensMax = 300;
    std::vector<u64> words(GeneratedMarks::n_words(kTokensMax), random.below(2) == 0 ? 0 : ~u64{0});
    GeneratedMarks marks(words);
    std::vector<bool> flags;
    for (u32 step = 0; step < 30; ++step) {
      const auto n = static_cast<u32>(random.below(70));
      if (random.below(4) == 0) {
        flags.resize(std::min<u64>(flags.size(), random.below(kTokensMax)));
        continue;
      }
      const auto begin = static_cast<u32>(flags.size());
      if (begin + n > kTokensMax) continue;
      const bool is_generated = random.below(2) == 0;
      marks.set(begin, begin + n, is_generated);
      flags.resize(begin + n, is_generated);
    }
    const auto n_ids = static_cast<u32>(flags.size());
    std::vector<u32> found;
    marks.for_each(n_ids, [&](u32 i) { found.push_back(i); });
    std::vector<u32> want;
    std::vector<std::pair<u32, u32>> answers, want_answers;
    for (u32 i = 0; i < n_ids; ++i) {
      REQUIRE(marks.at(i) == flags[i]);
      if (!flags[i]) continue;
      want.push_back(i);
      if (i == 0 || !flags[i - 1]) want_answers.push_back({i, i});
      want_answers.back().second = i + 1;
    }
    REQUIRE(found == want);
    marks.for_each_answer(n_ids, [&](u32 begin, u32 end) { answers.push_back({begin, end}); });
    REQUIRE(answers == want_answers);
    std::vector<u64> other_words(words.size());
    GeneratedMarks copy(other_words);
    copy.copy(marks, n_ids);
    for (u32 i = 0; i < n_ids; ++i) REQUIRE(copy.at(i) == flags[i]);
  }
}

}  // namespace
}  // namespace tarn::step::generated_marks_test
