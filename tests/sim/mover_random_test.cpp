// Goal    whatever the disk does, attention sees the bytes that were written or is told that they
//         are lost; no frame is used twice or lost; what cannot go on says so and harms no
//         other.
// Method  random steps, truncations and forks of sequences over a few frames and a store on faulty
//         disks, full or with a write budget, every pinned byte against an oracle: a slice of the
//         seeds that the slow test runs; counts of what they met. A life without faults and with
//         room may meet no error at all.
#include <doctest/doctest.h>

#include "tests/sim/mover_random.h"
#include "tests/support/seed.h"
#include "tests/support/slow_build.h"

namespace tarn::test::mover_random_test {
namespace {

TEST_CASE("random lives of KV over memory and faulty disks: a slice") {
  MoverRunCounts counts;
  run_mover_lives(seed_from_environment(), kSlowBuild ? 300 : 1500, counts);
  check_mover_counts(counts, kSlowBuild ? 1 : 5);
}

}  // namespace
}  // namespace tarn::test::mover_random_test
