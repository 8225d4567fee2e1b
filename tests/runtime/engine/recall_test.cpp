// Goal    the recall model answers every question of a document exactly, at any length, and each
//         fork of the session that read it answers alike.
// Method  a document of tools/synth/recall.h at 1K tokens with f16 KV (4K and 6K:
//         recall_native_test; 64K: recall_slow_test); the control cuts attention to the last
//         tokens and must not find the answers.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"

namespace tarn::engine::recall_test {

TEST_CASE("every answer is exact at 1K tokens") {
  test::check_recall({.n_tokens = 1024, .n_questions_max = 100});
}

TEST_CASE("attention cut to the last tokens loses the answers: the check can fail") {
  CHECK(test::share_recalled({.n_tokens = 1024, .n_questions_max = 40, .drop_first = 900}) < 0.5);
}

}  // namespace tarn::engine::recall_test
