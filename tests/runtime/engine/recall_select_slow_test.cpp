// Goal    128K tokens, of which a step reads 2,048: every answer is exact by PQCache's index, whose
//         codes do not give the keys back. A quarter of them, of which a step reads 512: another
//         token's codes find less than half.
// Method  as recall_select_native_test, which has the other controls. Reading 128K tokens is nearly
//         all of the time, and grows with the square.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"
#include "tests/runtime/engine/recall_select.h"

namespace tarn::engine::recall_select_slow_test {
namespace {

test::RecallCase case_of(const char* method, u32 n_tokens) {
  return {.n_tokens = n_tokens,
          .n_questions_max = 12,
          .select = test::one_in(64, n_tokens, method),
          .keys = synth::RecallKeys::turning};
}

TEST_CASE("1/64 of 128K tokens: PQCache's index") {
  const test::Recalled recalled = test::recall_with_error(case_of("pq", 128 * 1024));
  MESSAGE("reconstruction error ", recalled.error);
  CHECK(recalled.share == 1.0);
  CHECK(recalled.error > 1e-3);
}

TEST_CASE("1/64 of 32K tokens: wrong codes") {
  CHECK(test::share_recalled(case_of("shuffled-codes", 32 * 1024)) < 0.5);
}

}  // namespace
}  // namespace tarn::engine::recall_select_slow_test
