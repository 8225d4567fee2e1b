// Goal    as mover_random_test.cpp.
// Method  20,000 seeds, and each edge of a group's residency and each fault at least 100 times.
#include <doctest/doctest.h>

#include "tests/sim/mover_random.h"
#include "tests/support/seed.h"

namespace tarn::test::mover_random_slow_test {
namespace {

TEST_CASE("random lives of KV over memory and faulty disks") {
  MoverRunCounts counts;
  run_mover_lives(seed_from_environment(), 20'000, counts);
  check_mover_counts(counts, 100);
}

}  // namespace
}  // namespace tarn::test::mover_random_slow_test
