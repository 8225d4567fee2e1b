// Goal    as store_faults_test.cpp.
// Method  all power losses and calls, and every 17th bit, by way of a whole start and read each
//         (each bit of a head: tests/runtime/store/record_test.cpp). Counts are printed.
#include <doctest/doctest.h>

#include <cstdio>

#include "tests/sim/store_faults.h"

namespace tarn::test {
namespace {

TEST_CASE("power lost at every moment, calls failed, bits flipped") {
  const u64 n_images = try_power_losses(1), n_ordered = try_publication_order(1),
            n_runs = try_failing_calls(1, 16), n_flips = try_flipped_bits(17);
  std::printf(
      "%llu + %llu images after power loss, %llu runs with failing calls, "
      "%llu flipped bits\n",
      static_cast<unsigned long long>(n_images), static_cast<unsigned long long>(n_ordered),
      static_cast<unsigned long long>(n_runs), static_cast<unsigned long long>(n_flips));
  CHECK(n_images >= 50'000);
  CHECK(n_ordered >= 10'000);
  CHECK(n_runs >= 20'000);
  CHECK(n_flips > 30'000);
}

}  // namespace
}  // namespace tarn::test
