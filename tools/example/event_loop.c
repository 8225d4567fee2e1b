/* tools/example/event_loop.c: a host of libtarn with one thread, one poll loop, 32 conversations.
 *
 *   cc -I. tools/example/event_loop.c libtarn.a -luring -lstdc++ -lpthread -lm -o event_loop
 *   ./event_loop MODEL.gguf
 *
 * Each conversation has three turns: its input is fed, an answer is generated, and the end of the
 * answer begins the next turn. No call waits for the model, so the loop can serve sockets, too. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/api/tarn.h"

enum { kTalks = 32, kTurns = 3, kTokens = 16 };

typedef struct Talk {
  tarn_session* session; /* written by tarn_submit_create */
  char input[64];        /* valid until the reply to its feed */
  int n_turns;           /* begun */
  size_t text_bytes;     /* of its answers */
  int is_unwanted, is_cancelled, has_failed;
} Talk;

/* What a reply answers: an address each, in `request`. */
static char create, feed, generate, destroy;

static int n_open = 0; /* talks whose last reply has not come */

static void fail(Talk* talk, const char* what, const char* why) {
  fprintf(stderr, "%s: %s\n", what, why);
  talk->has_failed = 1;
}

/* The last call of a talk. */
static void end(Talk* talk) {
  if (talk->session == NULL || tarn_submit_destroy(talk->session, &destroy) != TARN_OK) --n_open;
}

/* Both calls at once: calls of one session are carried out in their order, and a generate behind a
 * feed that fails is not. 32 talks have at most 64 calls unanswered, of the 256 that may be. */
static void begin_turn(Talk* talk) {
  if (talk->n_turns == kTurns || talk->has_failed || talk->is_cancelled) {
    end(talk);
    return;
  }
  ++talk->n_turns;
  snprintf(talk->input, sizeof talk->input, "Turn %d of a long day. ", talk->n_turns);
  const uint32_t flags = talk->n_turns == 1 ? TARN_ADD_SPECIAL : 0;
  tarn_generate_options options = TARN_INIT(tarn_generate_options);
  options.max_tokens = talk->is_unwanted ? 0 : kTokens; /* 0: until it is cancelled */
  options.ignore_end = 1;
  if (tarn_submit_feed_text(talk->session, talk->input, strlen(talk->input), flags, &feed) !=
          TARN_OK ||
      tarn_submit_generate(talk->session, &options, &generate) != TARN_OK) {
    fail(talk, "submit", tarn_error_text()); /* TARN_WOULD_BLOCK: the 256, submit it again later */
    end(talk);
  }
}

static void on_reply(Talk* talk, const tarn_event* reply) {
  /* A server tries a feed again later that is answered TARN_WOULD_BLOCK: too many sessions wait. */
  if (reply->status != TARN_OK) fail(talk, tarn_status_name(reply->status), reply->text);
  if (reply->request == &create && reply->status == TARN_OK) begin_turn(talk);
  if (reply->request == &create && reply->status != TARN_OK) --n_open;
  if (reply->request == &generate && reply->status != TARN_OK) end(talk); /* no DONE comes */
  if (reply->request == &destroy) --n_open;
}

static void on_event(Talk* talk, const tarn_event* event) {
  switch (event->type) {
    case TARN_EVENT_REPLY:
      on_reply(talk, event);
      break;
    case TARN_EVENT_TEXT: /* a server writes event->text to its client here */
      talk->text_bytes += event->text_bytes;
      if (talk->is_unwanted) tarn_session_cancel(talk->session);
      break;
    case TARN_EVENT_DONE:
      talk->is_cancelled = event->finish == TARN_FINISH_CANCELLED;
      if (event->status != TARN_OK) fail(talk, "generate", tarn_status_name(event->status));
      begin_turn(talk);
      break;
    default: /* TOKEN: an id and its logprob */
      break;
  }
}

static int run(tarn_engine* engine, Talk* talks) {
  for (int i = 0; i < kTalks; ++i) {
    tarn_session_options options = TARN_INIT(tarn_session_options);
    options.user = &talks[i]; /* comes with each event and reply */
    if (tarn_submit_create(engine, &options, &talks[i].session, &create) == TARN_OK) {
      ++n_open;
    } else {
      fail(&talks[i], "create", tarn_error_text());
    }
  }
  struct pollfd ready = {.fd = tarn_engine_fd(engine), .events = POLLIN};
  if (ready.fd < 0) {
    fprintf(stderr, "tarn_engine_fd: %s\n", tarn_error_text());
    return 1;
  }
  while (n_open > 0) {
    if (poll(&ready, 1, -1) < 0 && errno != EINTR) return 1;
    tarn_event event = TARN_INIT(tarn_event);
    int32_t status;
    while ((status = tarn_engine_take(engine, &event)) == TARN_OK) on_event(event.user, &event);
    if (status != TARN_WOULD_BLOCK) { /* dead, or its GPU is lost */
      fprintf(stderr, "the engine has ended: %s\n", tarn_error_text());
      return 1;
    }
  }
  return 0;
}

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: %s MODEL.gguf\n", argv[0]);
    return 64;
  }
  tarn_options options = TARN_INIT(tarn_options);
  options.model_path = argv[1];
  options.budget_bytes = 2ull << 30;
  options.config_toml = "kv.context_tokens = 8192\nengine.sessions_max = 32\n";
  tarn_engine* engine = NULL;
  if (tarn_open(&options, &engine) != TARN_OK) {
    fprintf(stderr, "tarn_open: %s\n", tarn_error_text());
    return 1;
  }
  static Talk talks[kTalks];
  talks[kTalks / 2].is_unwanted = 1;
  const int status = run(engine, talks);
  tarn_close(engine);
  int n_turns = 0, n_cancelled = 0, n_failed = 0;
  for (int i = 0; i < kTalks; ++i) {
    n_turns += talks[i].n_turns;
    n_cancelled += talks[i].is_cancelled;
    n_failed += talks[i].has_failed;
  }
  printf("%d turns of %d conversations, %d cancelled, %d failed\n", n_turns, kTalks, n_cancelled,
         n_failed);
  return status != 0 || n_failed > 0;
}
