// Goal    the recall model answers as exactly when a step reads 1/64 of the tokens, if the right
//         ones: by PQCache's index, whose codes lose something, and not by chance, a window, or
//         codes of other tokens.
// Method  the variant whose keys turn (tools/synth/recall.h), documents of 4K tokens (128K:
//         recall_select_slow_test); every answer token but the first selects. What the codes of the
//         index that was searched give back is not the keys: a lossless one would prove nothing.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"
#include "tests/runtime/engine/recall_select.h"
#include "tests/support/slow_build.h"

namespace tarn::engine::recall_select_native_test {

TEST_CASE("1/64 of 4K tokens is enough for PQCache's index, and for no other of its size") {
  const auto case_of = [](const char* method) {
    return test::RecallCase{.n_tokens = 4096,
                            .n_questions_max = 12,
                            .select = test::one_in(64, 4096, method),
                            .keys = synth::RecallKeys::turning};
  };
  const auto share = [&](const char* method) { return test::share_recalled(case_of(method)); };
  const test::Recalled recalled = test::recall_with_error(case_of("pq"));
  CHECK(recalled.share == 1.0);
  CHECK(recalled.error > 1e-3);
  CHECK(share("shuffled-codes") < 0.5);
  if (test::kSlowBuild) return;  // selection_native_test runs every method
  CHECK(share("oracle") == 1.0);
  CHECK(share("window") < 0.5);
  CHECK(share("random") < 0.5);
}

TEST_CASE("the model of the built-in demonstration, whose keys stand still, likewise" *
          doctest::skip(test::kSlowBuild)) {
  CHECK(test::share_recalled(
            {.n_tokens = 4096, .n_questions_max = 12, .select = test::one_in(64, 4096, "pq")}) ==
        1.0);
}

}  // namespace tarn::engine::recall_select_native_test
