/* Goal    libtarn is a guest: two engines in one C program that has a SIGPIPE handler of its own
 *         work side by side, and leave the handler, the signal mask, the locale and standard output
 *         as they were.
 * Method  engines on one model answer the same prompt from two threads; a write into a closed pipe
 *         must reach the host's handler; states of the process before and after are compared. */
#define _GNU_SOURCE
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/api/tarn.h"

#define REQUIRE(condition)                                                                    \
  do {                                                                                        \
    if (!(condition)) {                                                                       \
      fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, tarn_error_text()); \
      exit(1);                                                                                \
    }                                                                                         \
  } while (0)

static volatile sig_atomic_t n_sigpipe = 0;
static void on_sigpipe(int number) { n_sigpipe += number == SIGPIPE; }

enum { kTokens = 24 };
typedef struct Answer {
  tarn_engine* engine;
  uint32_t tokens[kTokens];
  uint32_t n;
} Answer;

static int32_t take(void* context, const tarn_event* event) {
  Answer* answer = context;
  if (event->type == TARN_EVENT_TOKEN) answer->tokens[answer->n++] = event->token;
  return 0;
}

static tarn_engine* open_engine(const char* path) {
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = path;
  options.budget_bytes = 1ull << 30;
  options.config_toml = "kv.context_tokens = 256\ncpu.threads = 2\n";
  tarn_engine* engine = NULL;
  REQUIRE(tarn_open(&options, &engine) == TARN_OK);
  return engine;
}

static void* answer_prompt(void* context) {
  Answer* answer = context;
  tarn_session* session = NULL;
  REQUIRE(tarn_session_create(answer->engine, NULL, &session) == TARN_OK);
  const char* prompt = "two engines, one process";
  REQUIRE(tarn_session_feed_text(session, prompt, strlen(prompt), TARN_ADD_SPECIAL) == TARN_OK);
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = kTokens;
  options.ignore_end = 1;
  REQUIRE(tarn_session_run(session, &options, take, answer) == TARN_OK);
  tarn_session_destroy(session);
  return NULL;
}

static void break_a_pipe(void) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  close(ends[0]);
  REQUIRE(write(ends[1], "x", 1) == -1);
  close(ends[1]);
}

int main(int argc, char** argv) {
  REQUIRE(argc == 2);
  struct sigaction action, after;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_sigpipe;
  sigaction(SIGPIPE, &action, NULL);
  sigset_t mask_before, mask_after; /* the system fills only the part that it uses */
  memset(&mask_before, 0, sizeof mask_before);
  memset(&mask_after, 0, sizeof mask_after);
  sigprocmask(SIG_SETMASK, NULL, &mask_before);
  char locale_before[64];
  snprintf(locale_before, sizeof locale_before, "%s", setlocale(LC_ALL, NULL));

  Answer answers[2];
  memset(answers, 0, sizeof answers);
  for (int i = 0; i < 2; ++i) answers[i].engine = open_engine(argv[1]);
  pthread_t threads[2];
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], NULL, answer_prompt, &answers[i]);
  break_a_pipe();
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], NULL);
  REQUIRE(answers[0].n == kTokens);
  REQUIRE(memcmp(answers[0].tokens, answers[1].tokens, sizeof answers[0].tokens) == 0);

  /* One engine gone, the other still answers; a third can be opened. */
  tarn_close(answers[0].engine);
  Answer again = {answers[1].engine, {0}, 0};
  answer_prompt(&again);
  REQUIRE(memcmp(again.tokens, answers[1].tokens, sizeof again.tokens) == 0);
  tarn_close(answers[1].engine);
  Answer third = {open_engine(argv[1]), {0}, 0};
  answer_prompt(&third);
  REQUIRE(memcmp(third.tokens, again.tokens, sizeof third.tokens) == 0);
  tarn_close(third.engine);

  break_a_pipe();
  REQUIRE(n_sigpipe == 2);
  sigaction(SIGPIPE, NULL, &after);
  REQUIRE(after.sa_handler == on_sigpipe);
  sigprocmask(SIG_SETMASK, NULL, &mask_after);
  REQUIRE(memcmp(&mask_before, &mask_after, sizeof mask_before) == 0);
  REQUIRE(strcmp(locale_before, setlocale(LC_ALL, NULL)) == 0);
  return 0;
}
