// Goal    from two points of a reading follows how long the rest takes, wherever it began.
// Method  times made of a known linear and quadratic part; points that cannot be, too.
#include "tools/tarn/reading_time.h"

#include <doctest/doctest.h>

namespace tarn::tools {
namespace {

TEST_CASE("the parts of a time that has both are found again") {
  const ReadingTime truth{.s_per_token = 2e-4, .s_per_square = 3e-9};
  for (const f64 begin : {0.0, 1000.0, 50000.0}) {
    CAPTURE(begin);
    const auto at = [&](f64 n) { return ReadingPoint{begin + n, truth.seconds(begin, begin + n)}; };
    const ReadingTime found = reading_time(begin, at(4096), at(8192));
    const f64 left_s = truth.seconds(begin + 8192, 131072);
    CHECK(found.seconds(begin + 8192, 131072) == doctest::Approx(left_s));
    CHECK(found.s_per_token == doctest::Approx(truth.s_per_token));
  }
}

TEST_CASE("a reading that became faster is taken as one of even speed") {
  const ReadingTime found = reading_time(0, {1000, 2}, {2000, 3});
  CHECK(found.s_per_square == 0);
  CHECK(found.seconds(2000, 4000) == doctest::Approx(3));
}

}  // namespace
}  // namespace tarn::tools
