// Goal    recall is exact at 128K tokens: beyond any length that a short test sees.
// Method  as recall_test, one document.
#include <doctest/doctest.h>

#include "tests/runtime/engine/recall_document.h"

namespace tarn::engine {

TEST_CASE("every answer is exact at 128K tokens") {
  test::check_recall({.n_tokens = 131072, .n_questions_max = 40});
}

}  // namespace tarn::engine
