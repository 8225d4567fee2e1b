// Goal    128K tokens, of which a step reads 2,048: every answer is exact by PQCache's index, none
//         is found by chance, by another token's codes, or by codes of keys before RoPE.
// Method  as recall_select_native_test. Minutes: run by hand.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"
#include "tests/runtime/engine/recall_select.h"

namespace tarn::engine {

TEST_CASE("1/64 of 128K tokens") {
  constexpr u32 kTokens = 128 * 1024;
  const auto share = [](SelectMethod method, const char* control = "") {
    return test::share_recalled({.n_tokens = kTokens,
                                 .n_questions_max = 12,
                                 .select = test::one_in(64, kTokens, method),
                                 .control = control,
                                 .keys = synth::RecallKeys::turning});
  };
  CHECK(share(SelectMethod::pq) == 1.0);
  CHECK(share(SelectMethod::random) < 0.5);
  CHECK(share(SelectMethod::pq, "shuffled-codes") < 0.5);
  CHECK(share(SelectMethod::pq, "keys-before-rope") < 0.5);
}

TEST_CASE("codes of 32K tokens, all of which are clustered, are not exact") {
  constexpr u32 kTokens = 32 * 1024;
  CHECK(test::reconstruction_error(kTokens, test::one_in(64, kTokens, SelectMethod::pq)) > 1e-3);
}

}  // namespace tarn::engine
