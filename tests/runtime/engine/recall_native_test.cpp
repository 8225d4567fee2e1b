// Goal    the recall model finds its answers at lengths that an emulator would take minutes over.
// Method  recall_document.h; recall_test.cpp shows that the check can fail.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"

namespace tarn::engine::recall_native_test {

TEST_CASE("every answer is exact at 4K tokens with q8_0 KV and with quantised weights") {
  test::check_recall({.n_tokens = 4096, .n_questions_max = 40, .kv_type = KvTypeChoice::q8_0});
  test::check_recall({.n_tokens = 4096, .n_questions_max = 40, .weights = "q8_0"});
}

TEST_CASE("every answer is exact at 6K tokens") {
  test::check_recall({.n_tokens = 6144, .n_questions_max = 40});
}

}  // namespace tarn::engine::recall_native_test
