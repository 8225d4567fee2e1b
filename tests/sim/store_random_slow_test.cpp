// Goal    as store_random_test.cpp.
// Method  15,000 seeds, and each edge of a record's life and each fault at least 100 times.
#include <doctest/doctest.h>

#include "tests/sim/store_random.h"
#include "tests/support/seed.h"

namespace tarn::test::store_random_slow_test {
namespace {

TEST_CASE("random lives of a store on faulty disks") {
  RandomRunCounts counts;
  run_random_lives(seed_from_environment(), 15'000, counts);
  check_counts(counts, 100);
}

}  // namespace
}  // namespace tarn::test::store_random_slow_test
