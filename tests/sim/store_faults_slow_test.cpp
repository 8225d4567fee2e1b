// Goal    as store_faults_test.cpp.
// Method  all power losses, and all calls. One bit in seven of more than 1 MiB of records, and each
//         of the labels, with a whole start and a read of everything. Counts are printed.
#include <doctest/doctest.h>

#include <cstdio>

#include "runtime/store/record.h"
#include "tests/sim/store_faults.h"

namespace tarn::test::store_faults_slow_test {
namespace {

TEST_CASE("power lost at every moment, calls failed") {
  const u64 n_images = try_power_losses(1), n_ordered = try_publication_order(1),
            n_runs = try_failing_calls(1, 16);
  std::printf("%llu + %llu images after power loss, %llu runs with failing calls\n",
              static_cast<unsigned long long>(n_images), static_cast<unsigned long long>(n_ordered),
              static_cast<unsigned long long>(n_runs));
  CHECK(n_images >= 50'000);
  CHECK(n_ordered >= 10'000);
  CHECK(n_runs >= 22'000);
}

TEST_CASE("bits flipped") {
  const u64 n_flips = try_flipped_bits(7), n_in_labels = try_flipped_label_bits(1);
  std::printf("%llu flipped bits of records, %llu of labels\n",
              static_cast<unsigned long long>(n_flips),
              static_cast<unsigned long long>(n_in_labels));
  CHECK(n_flips >= kMiB);
  CHECK(n_in_labels == store::kFramesBegin * 8);
}

}  // namespace
}  // namespace tarn::test::store_faults_slow_test
