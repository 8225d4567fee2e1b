// Goal    a percentile is the value of nearest rank: index ceil(percent n / 100) - 1 of the sorted.
// Method  the numbers 1 to n, in falling order, whose rank is their value.
#include "tools/support/percentile.h"

#include <doctest/doctest.h>

#include <vector>

namespace tarn::tools::percentile_test {
namespace {

TEST_CASE("the nearest rank, by hand") {
  struct Case {
    u32 n, percent;
    f64 expected;
  };
  const Case kCases[] = {{1, 99, 1},        {4, 99, 4},     {99, 99, 99},    {100, 99, 99},
                         {101, 99, 100},    {128, 99, 127}, {1000, 99, 990}, {4, 50, 2},
                         {1000, 100, 1000}, {1000, 1, 10}};
  for (const Case& c : kCases) {
    CAPTURE(c.n);
    CAPTURE(c.percent);
    std::vector<f64> values;
    for (u32 i = c.n; i > 0; --i) values.push_back(i);
    CHECK(percentile(values, c.percent) == c.expected);
  }
}

TEST_CASE("of nothing there is none") { CHECK(std::isnan(percentile({}, 99))); }

}  // namespace
}  // namespace tarn::tools::percentile_test
