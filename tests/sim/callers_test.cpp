// Goal    with a thousand callers every request ends, none is passed more often than
//         admission.h says, gaps between the tokens of answers keep pace.h's bound, no row stays
//         unused, and a tenant beside another one's flood is served as shares.h says.
// Method  a server by virtual clock that runs these functions alone, on two machines: hours with
//         most callers in their middle, and a flood. The bounds are the headers' formulas, made of
//         the machine's times. A slice of what the slow test runs.
#include <doctest/doctest.h>

#include "tests/sim/callers.h"
#include "tests/support/seed.h"

namespace tarn::test::callers_test {
namespace {

TEST_CASE("an hour of callers: all end, within the bounds") {
  ServerCounts counts;
  for (const Machine& machine : kMachines) {
    for (u64 i = 0; i < 4; ++i) run_day(machine, seed_from_environment() + i, 1.0 / 24, counts);
  }
  check_counts(counts, 1);
}

TEST_CASE("beside a flood: a tenant's share and its first tokens keep their bounds") {
  for (const Machine& machine : kMachines) run_flood(machine, seed_from_environment(), 60);
}

}  // namespace
}  // namespace tarn::test::callers_test
