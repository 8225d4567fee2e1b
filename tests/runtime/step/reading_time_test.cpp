// Goal    from two points of a reading follows how long the rest takes, wherever it began, and a
//         reading that goes on is told at each of its steps.
// Method  times made of a known linear and quadratic part; points that cannot be, too.
#include "runtime/step/reading_time.h"

#include <doctest/doctest.h>

namespace tarn::step::reading_time_test {
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

TEST_CASE("what is left of a reading is known from its first step on, and well from 2,048 tokens") {
  const ReadingTime truth{.s_per_token = 2e-4, .s_per_square = 3e-9};
  constexpr u32 kAll = 100'000, kSlice = 512;
  for (const u32 begin : {0u, 1000u, 50000u}) {
    CAPTURE(begin);
    ReadingClock clock;
    constexpr u64 kStartNs = 5'000'000'000;
    CHECK(clock.left_s(kStartNs, begin, kAll) == 0);
    for (u32 n = begin + kSlice; n < kAll; n += kSlice) {
      CAPTURE(n);
      const u64 now_ns = kStartNs + static_cast<u64>(truth.seconds(begin, n) * 1e9);
      const f64 left_s = clock.left_s(now_ns, n, kAll), true_s = truth.seconds(n, kAll);
      const bool is_sure = n - begin >= 2048;
      CHECK(left_s > 0.3 * true_s);
      CHECK(left_s < 1.001 * true_s);
      if (is_sure) CHECK(left_s == doctest::Approx(true_s).epsilon(0.001));
    }
  }
}

TEST_CASE("a reading begins anew where it is told so, or where less is read than before") {
  constexpr u64 kSecond = 1'000'000'000;
  ReadingClock clock;
  CHECK(clock.left_s(0, 0, 4000) == 0);
  CHECK(clock.left_s(kSecond, 1000, 4000) == doctest::Approx(3));
  CHECK(clock.left_s(2 * kSecond, 2000, 8000) == doctest::Approx(6));  // more has come
  CHECK(clock.left_s(9 * kSecond, 500, 4000) == 0);
  CHECK(clock.left_s(10 * kSecond, 1000, 4000) == doctest::Approx(6));
  clock.end();
  CHECK(clock.left_s(20 * kSecond, 3000, 4000) == 0);
  CHECK(clock.left_s(21 * kSecond, 3500, 4000) == doctest::Approx(1));
}

}  // namespace
}  // namespace tarn::step::reading_time_test
