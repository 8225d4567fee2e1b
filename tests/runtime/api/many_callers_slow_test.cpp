// Goal    as many_callers_test.cpp.
// Method  200 s of lives (TARN_CALLERS_SECONDS), beside the time that comparing takes; each
//         kind of event is met.
#include <doctest/doctest.h>

#include <cstdlib>

#include "tests/runtime/api/many_callers.h"
#include "tests/support/seed.h"

namespace tarn::test::many_callers_slow_test {
namespace {

TEST_CASE("64 sessions by one thread say what each says alone") {
  const char* seconds = std::getenv("TARN_CALLERS_SECONDS");
  CallerCounts counts;
  run_callers({.first_seed = seed_from_environment(),
               .seconds = seconds != nullptr ? std::strtoull(seconds, nullptr, 10) : 200,
               .n_acts = 2'000},
              counts);
  check_caller_counts(counts, 1);
}

}  // namespace
}  // namespace tarn::test::many_callers_slow_test
