// Goal    the recall model finds its answers at lengths that an emulator would take minutes over.
// Method  recall_document.h; recall_test.cpp shows that the check can fail.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"
#include "tests/support/slow_build.h"

namespace tarn::engine {

TEST_CASE("every answer is exact at 4K tokens with q8_0 KV and with quantised weights") {
  test::check_recall({.n_tokens = 4096, .n_questions_max = 40, .kv_type = KvTypeChoice::q8_0});
  test::check_recall({.n_tokens = 4096, .n_questions_max = 40, .weights = "q8_0"});
}

TEST_CASE("every answer is exact at 16K tokens") {
  test::check_recall({.n_tokens = test::kSlowBuild ? 6144u : 16384u, .n_questions_max = 40});
}

}  // namespace tarn::engine
