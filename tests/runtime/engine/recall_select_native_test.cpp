// Goal    the recall model answers as exactly when a step reads 1/64 of the tokens, if the right
//         ones: by PQCache's index, whose codes lose something, and not by chance, a window, codes
//         of other tokens, or of keys before RoPE.
// Method  the variant whose keys turn (tools/synth/recall.h), documents of 4K tokens (128K:
//         recall_select_slow_test); every answer token but the first selects. The index that a step
//         searches is made again from the session's own KV, to see that its reconstruction is not
//         exact: a lossless one would prove nothing.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"
#include "tests/runtime/engine/recall_select.h"
#include "tests/support/slow_build.h"

namespace tarn::engine {

TEST_CASE("1/64 of 4K tokens is enough for PQCache's index, and for no other of its size") {
  const auto share = [](SelectMethod method, const char* control = "") {
    return test::share_recalled({.n_tokens = 4096,
                                 .n_questions_max = 12,
                                 .select = test::one_in(64, 4096, method),
                                 .control = control,
                                 .keys = synth::RecallKeys::turning});
  };
  CHECK(share(SelectMethod::pq) == 1.0);
  CHECK(share(SelectMethod::pq, "shuffled-codes") < 0.5);
  if (test::kSlowBuild) return;  // selection_native_test runs every method
  CHECK(share(SelectMethod::oracle) == 1.0);
  CHECK(share(SelectMethod::window) < 0.5);
  CHECK(share(SelectMethod::random) < 0.5);
  CHECK(share(SelectMethod::pq, "keys-before-rope") < 0.5);
}

TEST_CASE("the model of the built-in demonstration, whose keys stand still, likewise" *
          doctest::skip(test::kSlowBuild)) {
  CHECK(test::share_recalled({.n_tokens = 4096,
                              .n_questions_max = 12,
                              .select = test::one_in(64, 4096, SelectMethod::pq)}) == 1.0);
}

TEST_CASE("its codes do not give the keys back") {
  CHECK(test::reconstruction_error(4096, test::one_in(64, 4096, SelectMethod::pq)) > 1e-3);
}

}  // namespace tarn::engine
