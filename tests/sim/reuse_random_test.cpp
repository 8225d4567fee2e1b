// Goal    with full attention an answer is the same, to the bit, whatever KV was in memory, on
//         disk, shared, cut or lost before, and whatever the disk did (ROBUSTNESS R17): a fault
//         ends an answer or leaves it whole, it never changes it.
// Method  random feeds, generations, cuts, forks and cancels of three sessions over few frames and
//         faulty disks; in every second life sessions are kept and evicted, and engines follow each
//         other on the disk. Each answer against an engine with an empty cache: a slice of what the
//         slow test runs.
#include <doctest/doctest.h>

#include "tests/sim/reuse_random.h"
#include "tests/support/seed.h"
#include "tests/support/slow_build.h"

namespace tarn::test::reuse_random_test {
namespace {

TEST_CASE("answers over memory and faulty disks are those of an empty cache: a slice") {
  ReuseCounts counts;
  run_reuse(seed_from_environment(), kSlowBuild ? 50 : 300, counts);
  if (!kSlowBuild) check_reuse_counts(counts, 1);
}

}  // namespace
}  // namespace tarn::test::reuse_random_test
