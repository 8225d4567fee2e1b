// Goal    64 sessions by one thread of the host, over the descriptor, with KV for a sixth of them:
//         no token, logprob or text differs from that of the same history alone, no event or reply
//         is lost or comes twice, refusals are those that tarn.h names, nobody waits for ever, and
//         the engine asks for no memory.
// Method  random feeds, generations, forks, cuts, cancels, deadlines, saves and restores, several
//         calls in flight; what a host can know of each session's tokens (told_tokens.h); then each
//         answer by an engine that has it alone. A slice of what the slow test runs.
#include <doctest/doctest.h>

#include "tests/runtime/api/many_callers.h"
#include "tests/support/seed.h"

namespace tarn::test::many_callers_test {
namespace {

TEST_CASE("64 sessions by one thread say what each says alone: a slice") {
  CallerCounts counts;
  run_callers({.first_seed = seed_from_environment(), .n_lives = 2, .n_acts = 300}, counts);
  check_caller_counts(counts, 0);
  CHECK(counts.evictions > 0);
}

}  // namespace
}  // namespace tarn::test::many_callers_test
