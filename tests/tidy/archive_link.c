/* Goal    libtarn.a links into a C program with the one line that tarn.h promises, and answers.
 * Method  a C11 program that is linked by the C compiler with nothing but that line's libraries; it
 *         asks what can be asked without a model, and is refused politely. */
#include <stdio.h>
#include <string.h>

#include "runtime/api/tarn_chat.h"
#include "runtime/api/tarn_chunks.h"

static int failures = 0;

static void check(int condition, const char* what) {
  if (!condition) {
    ++failures;
    fprintf(stderr, "not true: %s\n", what);
  }
}

int main(void) {
  tarn_engine* engine = (tarn_engine*)&failures;
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = "/nonexistent/model.gguf";
  options.budget_bytes = 1u << 30;

  check(tarn_error_text() != NULL, "there is always an error text");
  check(strcmp(tarn_status_name(TARN_OVER_BUDGET), "over_budget") == 0, "a status has its name");
  check(tarn_open(&options, &engine) == TARN_IO_FAILED, "a missing file is an I/O error");
  check(engine == NULL, "out-parameters are zeroed on failure");
  check(strlen(tarn_error_text()) > 0, "a failure has a text");
  tarn_close(NULL);
  return failures == 0 ? 0 : 1;
}
