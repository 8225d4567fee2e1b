// Goal    128K tokens, of which a step reads 2,048: every answer is exact by PQCache's index, whose
//         codes do not give the keys back; none is found by chance, in a window of as many tokens,
//         or by another token's codes.
// Method  as recall_select_native_test. Minutes: run by hand.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"
#include "tests/runtime/engine/recall_select.h"

namespace tarn::engine {
namespace {

test::RecallCase case_of(const char* method) {
  constexpr u32 kTokens = 128 * 1024;
  return {.n_tokens = kTokens,
          .n_questions_max = 12,
          .select = test::one_in(64, kTokens, method),
          .keys = synth::RecallKeys::turning};
}

// A case each, so that a run can be cut into slices of less than an hour: -tc="*wrong codes".
TEST_CASE("1/64 of 128K tokens: PQCache's index") {
  const test::Recalled recalled = test::recall_with_error(case_of("pq"));
  MESSAGE("reconstruction error ", recalled.error);
  CHECK(recalled.share == 1.0);
  CHECK(recalled.error > 1e-3);
}

TEST_CASE("1/64 of 128K tokens: a window and chance") {
  CHECK(test::share_recalled(case_of("window")) < 0.5);
  CHECK(test::share_recalled(case_of("random")) < 0.5);
}

TEST_CASE("1/64 of 128K tokens: wrong codes") {
  CHECK(test::share_recalled(case_of("shuffled-codes")) < 0.5);
}

}  // namespace
}  // namespace tarn::engine
