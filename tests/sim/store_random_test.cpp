// Goal    whatever the disk does and whenever the box goes down, the store hands out right bytes or
//         none, keeps what was flushed, and holds its invariants.
// Method  random lives on faulty disks, a slice of the seeds that the slow test runs; counts of
//         what they met.
#include <doctest/doctest.h>

#include "tests/sim/store_random.h"
#include "tests/support/seed.h"

namespace tarn::test::store_random_test {
namespace {

TEST_CASE("random lives of a store on faulty disks: a slice") {
  RandomRunCounts counts;
  run_random_lives(seed_from_environment(), 1200, counts);
  check_counts(counts, 10);
}

}  // namespace
}  // namespace tarn::test::store_random_test
