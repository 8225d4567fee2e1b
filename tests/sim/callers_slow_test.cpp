// Goal    as callers_test.cpp.
// Method  a whole day and longer floods, with several seeds.
#include <doctest/doctest.h>

#include "tests/sim/callers.h"
#include "tests/support/seed.h"

namespace tarn::test::callers_slow_test {
namespace {

constexpr u64 kSeeds = 5;

TEST_CASE("a day of callers: all end, within the bounds") {
  ServerCounts counts;
  for (const Machine& machine : kMachines) {
    for (u64 i = 0; i < kSeeds; ++i) run_day(machine, seed_from_environment() + i, 1, counts);
  }
  check_counts(counts, 20);
  CHECK(counts.most_overtaken == step::kOvertakenMax);  // the bound was met
}

TEST_CASE("beside a flood: a tenant's share and its first tokens keep their bounds") {
  for (const Machine& machine : kMachines) {
    for (u64 i = 0; i < kSeeds; ++i) run_flood(machine, seed_from_environment() + i, 1'000);
  }
}

}  // namespace
}  // namespace tarn::test::callers_slow_test
