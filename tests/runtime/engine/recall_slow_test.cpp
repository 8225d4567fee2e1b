// Goal    recall is exact at 64K tokens: beyond any length that a short test sees. (128K:
//         recall_select_slow_test, where full attention says each answer's first token.)
// Method  as recall_test, one document.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"

namespace tarn::engine::recall_slow_test {

TEST_CASE("every answer is exact at 64K tokens") {
  test::check_recall({.n_tokens = 65536, .n_questions_max = 40});
}

}  // namespace tarn::engine::recall_slow_test
