// Goal    the fit gives back the coefficients that made the points, the least squares where no
//         coefficients do, and none below 0.
// Method  made-up costs over the lengths and magnitudes of a real calibration; a line through four
//         points by hand.
#include "tools/support/least_squares.h"

#include <doctest/doctest.h>

namespace tarn::tools::least_squares_test {
namespace {

using Points = std::vector<std::vector<f64>>;

void check_close(const std::vector<f64>& got, const std::vector<f64>& want) {
  REQUIRE(got.size() == want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    CAPTURE(i);
    CHECK(got[i] == doctest::Approx(want[i]).epsilon(1e-6));
  }
}

TEST_CASE("points of a cost give its coefficients, whatever their sizes") {
  const std::vector<f64> prefill = {4.22e-4, 2.539e-6, 4.75e-11};
  const std::vector<f64> cluster = {2e-3, 3e-7, 1e-7};
  Points lengths, jobs;
  std::vector<f64> of_lengths, of_jobs;
  for (const f64 s : {512.0, 1024.0, 2048.0, 3072.0, 4096.0}) {
    lengths.push_back({1, s, s * s});
    of_lengths.push_back(prefill[0] + prefill[1] * s + prefill[2] * s * s);
    for (const f64 updates : {3.0, 9.0}) {
      jobs.push_back({1, s, s * updates});
      of_jobs.push_back(cluster[0] + cluster[1] * s + cluster[2] * s * updates);
    }
  }
  check_close(least_squares(lengths, of_lengths), prefill);
  check_close(least_squares(jobs, of_jobs), cluster);
}

TEST_CASE("a term whose figures are tiny is a term") {
  check_close(least_squares({{1, 1e-8}, {1, 2e-8}, {1, 3e-8}}, {2.5, 3, 3.5}), {2, 5e7});
}

TEST_CASE("points that no line meets: least squares") {
  // y = 3.5 + 1.4 x has the least squares of these (residuals 1.1, -1.3, -0.7, 0.9).
  const Points line = {{1, 1}, {1, 2}, {1, 3}, {1, 4}};
  check_close(least_squares(line, {6, 5, 7, 10}), {3.5, 1.4});
}

TEST_CASE("what would be negative, what is never there, and what the others say already is 0") {
  // Free, this is -1 + 2 x; without a constant the slope is sum(xy) / sum(xx) = 50 / 30.
  const Points line = {{1, 1}, {1, 2}, {1, 3}, {1, 4}};
  check_close(least_squares(line, {1, 3, 5, 7}), {0, 50.0 / 30.0});
  check_close(least_squares({{1, 0, 2}, {1, 0, 4}, {1, 0, 6}}, {3, 5, 7}), {1, 0, 1});
  const std::vector<f64> twice = least_squares({{1, 2}, {2, 4}, {3, 6}}, {2, 4, 6});
  CHECK(twice[0] + 2 * twice[1] == doctest::Approx(2));
}

}  // namespace
}  // namespace tarn::tools::least_squares_test
