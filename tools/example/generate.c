/* tools/example/generate.c: the smallest host of libtarn.
 *
 *   cc -I. tools/example/generate.c libtarn.a -luring -lstdc++ -lpthread -lm -o generate
 *   ./generate MODEL.gguf "Once upon a time"
 *
 * Opens a model inside 2 GiB, streams 32 tokens to standard output and says what it cost. */
#include <stdio.h>
#include <string.h>

#include "runtime/api/tarn.h"

static int32_t print_event(void* context, const tarn_event* event) {
  (void)context;
  if (event->type == TARN_EVENT_TEXT) {
    fwrite(event->text, 1, event->text_bytes, stdout);
    fflush(stdout);
  }
  if (event->type == TARN_EVENT_DONE) {
    printf("\n[%s] %u tokens, first after %.3f s\n", tarn_finish_name(event->finish),
           event->n_tokens, (double)event->prefill_ns * 1e-9);
  }
  return 0; /* anything else would cancel */
}

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, tarn_error_text());
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: %s MODEL.gguf PROMPT\n", argv[0]);
    return 64;
  }
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = argv[1];
  options.budget_bytes = 2ull << 30;
  options.config_toml = "kv.context_tokens = 1024\n";
  options.log_level = 2;
  tarn_engine* engine = NULL;
  if (tarn_open(&options, &engine) != TARN_OK) return fail("tarn_open");

  tarn_session* session = NULL;
  if (tarn_session_create(engine, NULL, &session) != TARN_OK) return fail("tarn_session_create");
  if (tarn_session_feed_text(session, argv[2], strlen(argv[2]), TARN_ADD_SPECIAL) != TARN_OK) {
    return fail("tarn_session_feed_text");
  }
  tarn_generate_options generate = TARN_INIT(tarn_generate_options);
  generate.max_tokens = 32;
  if (tarn_session_run(session, &generate, print_event, NULL) != TARN_OK) {
    return fail("tarn_session_run");
  }
  tarn_session_destroy(session);
  tarn_close(engine);
  return 0;
}
