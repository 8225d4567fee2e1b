// Goal    the recall model answers every question of a document exactly, at any length, and each
//         fork of the session that read it answers alike.
// Method  documents of tools/synth/recall.h at 1K and 16K tokens with f16 KV (128K:
//         recall_slow_test); the control asks for keys that the document does not have and must not
//         find the answers.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"

namespace tarn::engine {

TEST_CASE("every answer is exact at 1K and 16K tokens") {
  test::check_recall({.n_tokens = 1024, .n_questions_max = 100});
  test::check_recall({.n_tokens = 16384, .n_questions_max = 40});
}

TEST_CASE("every answer is exact at 4K tokens with q8_0 KV and with quantised weights") {
  test::check_recall({.n_tokens = 4096, .n_questions_max = 40, .kv_type = KvTypeChoice::q8_0});
  test::check_recall({.n_tokens = 4096, .n_questions_max = 40, .weights = "q8_0"});
}

TEST_CASE("attention cut to the last tokens loses the answers: the check can fail") {
  CHECK(test::share_recalled({.n_tokens = 1024, .n_questions_max = 40, .drop_first = 900}) < 0.5);
}

}  // namespace tarn::engine
