// Goal    as reuse_random_test.cpp.
// Method  5,000 answers, each event and each fault at least 20 times.
#include <doctest/doctest.h>

#include "tests/sim/reuse_random.h"
#include "tests/support/seed.h"

namespace tarn::test::reuse_random_slow_test {
namespace {

TEST_CASE("answers over memory and faulty disks are those of an empty cache") {
  ReuseCounts counts;
  run_reuse(seed_from_environment(), 5'000, counts);
  check_reuse_counts(counts, 20);
}

}  // namespace
}  // namespace tarn::test::reuse_random_slow_test
