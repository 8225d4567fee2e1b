// Goal    as select_random_test.cpp.
// Method  5,000 answers, each event and each fault at least 20 times.
#include <doctest/doctest.h>

#include "tests/sim/select_random.h"
#include "tests/support/seed.h"

namespace tarn::test::select_random_slow_test {
namespace {

TEST_CASE("answers by selection over faulty disks are those over memory") {
  SelectCounts counts;
  run_select(seed_from_environment(), 5'000, counts);
  check_select_counts(counts, 20);
}

}  // namespace
}  // namespace tarn::test::select_random_slow_test
