// Goal    reading by selection, an answer is the same, to the bit, whatever KV was in memory,
//         in caches, in extents, on disk, shared or cut before, and whatever the disk did
//         (ROBUSTNESS R17, lossy presets): a fault ends an answer or leaves it whole, it never
//         changes it.
// Method  random inputs, generations, cuts and forks of three sessions over few frames and faulty
//         disks, each answer against an engine that was told the same and has all KV in memory, and
//         exact ones also against full attention: a slice of what the slow test runs.
#include <doctest/doctest.h>

#include "tests/sim/select_random.h"
#include "tests/support/seed.h"
#include "tests/support/slow_build.h"

namespace tarn::test::select_random_test {
namespace {

TEST_CASE("answers by selection over faulty disks are those over memory: a slice") {
  SelectCounts counts;
  run_select(seed_from_environment(), kSlowBuild ? 40 : 400, counts);
  if (!kSlowBuild) check_select_counts(counts, 1);
}

}  // namespace
}  // namespace tarn::test::select_random_test
