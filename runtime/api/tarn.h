/* runtime/api/tarn.h: the public interface of libtarn, C11. Version 0. Its parts are tarn_error.h,
 * statuses and reasons, which is included here; tarn_chat.h, conversations that a template writes;
 * tarn_chunks.h, prompts of passages in any order; tarn_explain.h, what was decided; tarn_store.h,
 * sessions that outlive the engine.
 *
 * Tarn runs one quantised language model inside one fixed memory budget. This header is the manual.
 *
 *   tarn_open        reads the model, prints nothing, reserves every byte it will ever use
 *   tarn_session_*   a conversation: feed tokens or text, generate, fork, truncate
 *   tarn_submit_*    the same calls, which return at once, for a host with one event loop
 *   tarn_close       releases everything (except what a disk that does not answer still uses)
 *
 * Link with:  cc host.c libtarn.a -luring -lstdc++ -lpthread -lm
 * and, if it was built with CUDA, with -lcudart_static -ldl -lrt before -lpthread. The GPU's driver
 * is not linked: without one the CPU computes.
 *
 * A guest in your process. The library installs no signal handler, reads no environment variable,
 * changes no locale, prints nothing, and never ends the process. It starts its own threads (one
 * that drives the engine, one that reads texts, and workers), blocks all signals on them, and
 * exports only names that begin with tarn_. Two engines in one process are independent.
 *
 * Threads. Every function may be called from any thread. The engine's own thread executes the calls
 * on an engine one after another; a call waits for its turn, behind earlier calls on its session.
 * Texts are rendered and tokenized on another thread, so that no step waits for a text. The hooks
 * for log, progress and failure run on the engine's threads: their calls on their own engine are
 * refused, and tarn_close does nothing there.
 *
 * Processes. An engine belongs to the process that opened it. In a child of fork(2) every call on
 * it returns at once with TARN_INVALID_REQUEST; tarn_is_end returns 0, and tarn_close and
 * tarn_session_destroy release nothing. The child can open an engine of its own. A child that was
 * forked in a hook must end there, by exec or _exit.
 *
 * Errors. Functions return a tarn_status; 0 is success. After a failure tarn_error_text() has one
 * sentence for people, which names the remedy, and tarn_error_get() the reason (tarn_reason) and
 * its figures for programs. Out-parameters are zeroed on failure. If an assertion inside the
 * library fails, the fatal hook is called once and the engine is dead. Every later call that needs
 * its thread returns TARN_INTERNAL; the process continues. If it failed in a text, that holds for
 * calls with a text alone. A count is compared with its limit before its elements are read.
 *
 * Structs. Set struct_size to sizeof the struct (TARN_INIT does), so that later versions can append
 * fields; fields you leave zero take their default. A field or a bit of `flags` that this version
 * does not know must be zero: anything else is TARN_INVALID_REQUEST.
 */
#ifndef TARN_H
#define TARN_H
#include <stddef.h>
#include <stdint.h>

#include "runtime/api/tarn_error.h"

#define TARN_VERSION_MAJOR 0
#define TARN_VERSION_MINOR 1

#ifdef __cplusplus
extern "C" {
#endif

/* Owned by the caller from tarn_open to tarn_close. */
typedef struct tarn_engine tarn_engine;
/* Owned by the caller from create or fork to destroy; dies with its engine at the latest. */
typedef struct tarn_session tarn_session;

/* level: 0 debug, 1 info, 2 warning, 3 error. One line, valid during the call. */
typedef void (*tarn_log_fn)(void* context, int32_t level, const char* text);
/* Called at most once per engine, on the thread that failed. A thread of ours is parked then. */
typedef void (*tarn_fatal_fn)(void* context, const char* condition, const char* file,
                              uint32_t line);
/* Bytes, while the file is checked (model.sha256), then anew while the weights are read.
 * Non-zero cancels: TARN_CANCELLED. */
typedef int32_t (*tarn_progress_fn)(void* context, uint64_t done, uint64_t total);

typedef struct tarn_options {
  uint32_t struct_size;
  int32_t log_level;       /* least level that is reported: 0 debug, 1 info, 2 warning, 3 error */
  const char* model_path;  /* a GGUF file */
  const char* config_toml; /* keys: configs/README.md; NULL: defaults, which have no budget */
  uint64_t budget_bytes;   /* ceiling over all memory of the engine; 0: as in config_toml */
  tarn_log_fn log;
  void* log_context;
  tarn_fatal_fn fatal;
  void* fatal_context;
  tarn_progress_fn progress; /* called on the engine's thread, while tarn_open waits */
  void* progress_context;
  const uint32_t* cpus; /* CPUs of the process for the engine's threads; NULL: all */
  uint32_t n_cpus;
  const char* chat_template; /* see tarn_chat.h; NULL: the model's own */
} tarn_options;

/* Reserves every byte that the engine will use and reads the weights, or keeps nothing. */
TARN_API int32_t tarn_open(const tarn_options* options, tarn_engine** engine_out);
/* Cancels running work, joins the threads, frees the memory. NULL is allowed. Sessions die with it;
 * kept ones stay in the store as of their last checkpoint, so call tarn_session_save first. Calls
 * of other threads return TARN_CANCELLED before tarn_close does; none may begin after it. Do not
 * call it from the callback of tarn_session_run, which is such a call. A dead engine is abandoned,
 * not freed, because its parked threads still use its memory. */
TARN_API void tarn_close(tarn_engine* engine);

/* ---- The memory plan ------------------------------------------------------------------------ */

typedef struct tarn_region {
  char name[32];
  char space[16]; /* device, host, disk */
  char kind[16];  /* weights, kv, codes, scratch, heap, io, driver, other */
  uint64_t bytes;
  char formula[256]; /* how the bytes are computed */
} tarn_region;

typedef struct tarn_plan {
  uint32_t struct_size;
  int32_t fits;         /* 1: total_bytes <= budget_bytes, or no budget was given */
  uint64_t total_bytes; /* what tarn_open would reserve */
  uint64_t budget_bytes;
  uint64_t context_tokens;
  uint32_t n_regions;
  tarn_region regions[32];
} tarn_plan;

/* Computes what tarn_open would reserve; reads only the file's directory, at its head. A plan that
 * does not fit is no error here: `fits` is 0, and tarn_error_text() says what to lower. */
TARN_API int32_t tarn_plan_memory(const tarn_options* options, tarn_plan* plan_out);
/* The plan of an open engine. */
TARN_API int32_t tarn_engine_plan(tarn_engine* engine, tarn_plan* plan_out);

/* ---- Status --------------------------------------------------------------------------------- */

typedef struct tarn_engine_status {
  uint32_t struct_size;
  int32_t dead;                   /* 1 after a failed assertion */
  char device[16];                /* cpu, cuda */
  char isa[16], io[16], arch[16]; /* avx512, avx2, generic; io_uring, threads; llama, qwen2, ... */
  int32_t memory_locked;
  uint32_t n_workers, n_sessions, sessions_max, n_vocab;
  uint64_t context_tokens; /* planned KV slots of all sessions */
  /* A group is kv.page_tokens slots of one layer; those kept for reuse alone are free, too. */
  uint64_t kv_groups_free, kv_groups_max;
  uint64_t n_params, weights_bytes, load_ns;       /* of the file's tensors; time to read them */
  uint64_t n_steps, n_prefill_rows, n_decode_rows; /* since the engine was opened */
  uint64_t prefill_ns, decode_ns;            /* time in steps with, and without, prefill rows */
  uint64_t weight_bytes_read, kv_bytes_read; /* by all steps */
  char select[16];  /* which K and V a step reads: full, pq, ... (select.method) */
  int32_t verified; /* 1: exact, or passed by tarn verify with this model and these settings
                       (select.verified); 0: approximate and not verified */
  /* Speeds at which the GPU reads its own memory and the host's, measured when the engine was
   * opened; 0 on the CPU, or if the GPU reaches no host memory. */
  uint64_t gpu_bytes_per_s, gpu_shared_bytes_per_s;
  int32_t gpu_promotes_without_copy; /* 1: the two are nearly equal */
  /* State of the store, which holds KV beyond memory and kept sessions: none, on, read-only (its
   * disk refused writes) or off (its disk failed, or could not be used from the start). The log has
   * the reason; opening the engine again retries. */
  char store[16];
  /* 1: parts of the store's file were unreadable at opening: a saved session may be TARN_NOT_FOUND,
   * or be recomputed in part, although it was not deleted. */
  int32_t sessions_may_be_lost;
  uint64_t select_steps; /* as in DONE, for all decode steps since the engine was opened */
  double kv_read_ratio;
  int32_t model_verified;        /* 1: the file's SHA-256 is model.sha256; 0: without the key */
  uint32_t n_running, n_waiting; /* sessions that compute or generate, and that wait to */
  /* The board as of this call; "" or 0 where Linux does not show it. */
  char power_mode[32], hottest_zone[32]; /* nvpmodel's, else cpufreq's governor; a thermal zone */
  int32_t hottest_millidegrees;          /* Celsius */
  uint32_t cpu_mhz, cpu_mhz_max, gpu_mhz, gpu_mhz_max; /* the slowest CPU's; a Jetson's GPU's */
  uint32_t n_throttling; /* cooling devices that slow down what computes now */
  float recompute;       /* what TARN_RECOMPUTE_AUTO means (tarn_chunks.h); 1: all is computed */
  /* 1: rows of the embedding could not be read from the model's file, or the file has changed
   * (model.embedding = "disk"). Prompts fail until the engine is opened again. */
  int32_t model_lost;
  /* The store: bytes of its records, and the most it may have; since the engine was opened: bytes
   * read and written, and records that gave way to newer ones. */
  uint64_t store_bytes, store_bytes_max, store_bytes_read, store_bytes_written, store_evictions;
} tarn_engine_status;

TARN_API int32_t tarn_engine_status_get(tarn_engine* engine, tarn_engine_status* status_out);

/* ---- Text ----------------------------------------------------------------------------------- */

enum {
  TARN_ADD_SPECIAL = 1,   /* BOS and EOS, as the model's file says; where text is fed, BOS alone */
  TARN_PARSE_SPECIAL = 2, /* control tokens in the text become themselves: trusted text only */
  TARN_ADD_BOS = 4        /* BOS alone, as the file says: for ids that are fed and continued */
};

/* Writes the ids of `text` (any bytes) into ids_out. n_out is the count, also if ids_max is too
 * small: then it returns TARN_INVALID_REQUEST, and ids_out has the first ones. ids_max = 0 asks for
 * the count. A text may be of any length, but a word or a run of one letter that is longer than
 * 44 KiB can be refused (16 KiB where the context has 2,000 tokens): break it by a line break. */
TARN_API int32_t tarn_tokenize(tarn_engine* engine, const char* text, uint64_t text_bytes,
                               uint32_t flags, uint32_t* ids_out, uint64_t ids_max,
                               uint64_t* n_out);
/* Writes the bytes of one token, not terminated; a control token as it is written in the
 * vocabulary. n_out is the length, also if bytes_max is too small. */
TARN_API int32_t tarn_piece(tarn_engine* engine, uint32_t token, char* bytes_out,
                            uint64_t bytes_max, uint64_t* n_out);
/* 1 if the model ends its turn with this token; 0 if not, or if the call is refused. */
TARN_API int32_t tarn_is_end(tarn_engine* engine, uint32_t token);

/* ---- Sessions ------------------------------------------------------------------------------- */

enum { TARN_INTERACTIVE = 0, TARN_BACKGROUND = 1 };

/* Whose a session is. NULL instead of it: the default tenant's, interactive. */
typedef struct tarn_session_options {
  uint32_t struct_size;
  const char* tenant; /* any text; NULL: the default tenant. Sessions of one tenant reuse each
                         other's KV (reuse.prefix) and share the names of saved sessions. Nothing
                         of another tenant's prompts shows, not even in the time a prompt takes */
  void* user;         /* comes with the session's events; Tarn does not look at it */
  int32_t priority;   /* TARN_BACKGROUND: interactive sessions go first, and take its place */
} tarn_session_options;

/* Creates an empty session. TARN_WOULD_BLOCK: engine.sessions_max are open. */
TARN_API int32_t tarn_session_create(tarn_engine* engine, const tarn_session_options* options,
                                     tarn_session** session_out);
/* Cancels, and frees the KV. NULL is allowed. A kept session stays in the store: an answer that has
 * ended, or an input that was computed, is checkpointed first (with store.checkpoint_ms > 0), which
 * waits for the disk. Otherwise the last checkpoint stays. */
TARN_API void tarn_session_destroy(tarn_session* session);

/* Appends tokens, or does nothing (TARN_WOULD_BLOCK: engine.waiting_max sessions wait already, the
 * text says when to try again; TARN_INVALID_REQUEST: the session generates, or they can never fit,
 * and no id was read). All but the last are computed in the background, once the session has its
 * turn (engine.running_max) and KV, which idle sessions give up. KV of whole pages (kv.page_tokens)
 * that any session of the tenant has computed is taken from memory or from the store
 * (reuse.prefix); the rest is computed. No token differs for that. */
TARN_API int32_t tarn_session_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids);
/* Tokenizes and feeds in one call, with the limits and errors of both. A fed text is to be
 * continued, so no flag adds EOS behind it. */
TARN_API int32_t tarn_session_feed_text(tarn_session* session, const char* text,
                                        uint64_t text_bytes, uint32_t flags);

typedef struct tarn_logit_bias {
  uint32_t token;
  float bias; /* added to the logit; -INFINITY forbids the token */
} tarn_logit_bias;

typedef struct tarn_generate_options {
  uint32_t struct_size;
  uint32_t max_tokens;          /* 0: until the model ends or the context is full */
  float temperature;            /* 0: greedy */
  uint32_t top_k;               /* 0: off */
  float top_p;                  /* 0 or >= 1: off */
  float min_p;                  /* 0: off */
  float repetition_penalty;     /* of the last tokens, fed or generated; 0 or 1: off */
  float frequency_penalty;      /* of all tokens that the session has generated, each time; 0: off.
                                   A restored session counts its last 32 answers, and of a
                                   selecting method those that were not computed anew */
  float presence_penalty;       /* of the same, once; 0: off */
  uint32_t penalty_last_tokens; /* window of repetition_penalty; 0: 64; at most 4096 */
  uint64_t seed;                /* of the sampler; the same seed gives the same tokens */
  const tarn_logit_bias* logit_biases;
  uint32_t n_logit_biases;  /* at most 256 */
  uint32_t n_stops;         /* at most 16, each 1..128 bytes */
  const char* const* stops; /* UTF-8; the text ends before the first one that appears */
  uint32_t n_top_logprobs;  /* alternatives reported with each token, at most 20 */
  int32_t ignore_end;       /* 1: go on after the model's end token */
  int32_t no_logprobs;      /* 1: tokens have no logprob. Greedy tokens are faster then, above
                                   all on a GPU, where the logits stay */
  uint32_t deadline_ms;     /* from this call, or its submission, on. Then the answer ends, begun or
                               not, as by a cancel. 0: none */
} tarn_generate_options;

enum {
  TARN_FINISH_NONE = 0,
  TARN_FINISH_END = 1,       /* the model ended its turn ("stop") */
  TARN_FINISH_STOP = 2,      /* a stop string ("stop") */
  TARN_FINISH_LENGTH = 3,    /* max_tokens, or the context is full ("length") */
  TARN_FINISH_CANCELLED = 4, /* ("cancelled") */
  TARN_FINISH_ERROR = 5,     /* see tarn_event.status ("error") */
  TARN_FINISH_DEADLINE = 6   /* deadline_ms was over ("deadline") */
};
TARN_API const char* tarn_finish_name(int32_t finish);

enum {
  TARN_EVENT_TOKEN = 1,
  TARN_EVENT_TEXT = 2,
  TARN_EVENT_DONE = 3,
  TARN_EVENT_REPLY = 4 /* to a submitted call */
};

typedef struct tarn_logprob {
  uint32_t token;
  float logprob; /* natural logarithm, in the model's own distribution (before the sampler) */
} tarn_logprob;

/* One token, a piece of text, or the end. Text is valid UTF-8 at every moment. It may lag behind
 * the tokens (an unfinished character, a possible stop string); all of it comes before DONE. */
typedef struct tarn_event {
  uint32_t struct_size;
  int32_t type;
  uint32_t token; /* TOKEN */
  float logprob;  /* TOKEN; 0 with no_logprobs */
  uint32_t n_top; /* TOKEN: entries of top, best first */
  tarn_logprob top[20];
  uint32_t text_bytes;   /* TEXT, REPLY. TOKEN: the text that it adds to the answer, some of which
                            may be held back, or cut by a stop string */
  char text[512];        /* TEXT; terminated, may hold zero bytes before its end. REPLY: the error's
                            sentence, as tarn_error_text() has it for a blocking call */
  int32_t finish;        /* DONE */
  int32_t status;        /* DONE: a tarn_status, 0 unless finish is TARN_FINISH_ERROR; then
                           tarn_session_wait has the text, until the session continues.
                           REPLY: what the blocking call would have returned */
  uint32_t n_tokens;     /* DONE: generated */
  uint64_t prefill_ns;   /* DONE: from the first feed since the last DONE to the first token */
  uint64_t decode_ns;    /* DONE: from the first token to the last */
  uint64_t select_steps; /* DONE: decode steps that read selected K and V (select.method) */
  double kv_read_ratio;  /* DONE: share of visible slots that decode steps read; 1 without any */
  uint32_t reused_from_memory, reused_from_disk; /* DONE: tokens fed since the last DONE whose KV
                                                    was there, or in the store */
  tarn_session* session; /* whose event it is, which was called, or which was created by a call on
                            the engine; else NULL */
  void* user;            /* the session's; in a reply to create or restore the options' */
  void* request;         /* REPLY: as it was submitted */
  uint32_t n_placed, n_recomputed; /* DONE: of chunks (tarn_chunks.h); placed ones: approximate */
  int32_t reason;                  /* REPLY, DONE: a tarn_reason */
  const char* key;                 /* REPLY: as tarn_error has it */
  tarn_figure figures[4];
  uint64_t wait_ns; /* DONE: of prefill_ns, until the session's turn came */
} tarn_event;

/* Starts to generate after the fed tokens, of which there must be at least one. Read the events
 * with tarn_session_poll, or of all sessions with tarn_engine_take, until DONE; before that the
 * session begins nothing new. A reader that does not read stops only its own session. */
TARN_API int32_t tarn_session_generate(tarn_session* session, const tarn_generate_options* options);
/* Returns the next event. Waits up to timeout_ms (-1: for ever). TARN_WOULD_BLOCK: there is none by
 * then; TARN_INVALID_REQUEST: the session does not generate. */
TARN_API int32_t tarn_session_poll(tarn_session* session, int32_t timeout_ms,
                                   tarn_event* event_out);
/* Generates and calls on_event on this thread until DONE. A non-zero return cancels: then only DONE
 * follows, with finish CANCELLED unless the generation has already ended. Returns the status of
 * tarn_session_generate if that failed, else DONE's status. */
typedef int32_t (*tarn_event_fn)(void* context, const tarn_event* event);
TARN_API int32_t tarn_session_run(tarn_session* session, const tarn_generate_options* options,
                                  tarn_event_fn on_event, void* context);
/* Cancels a running generation, or the rest of a prefill, and what earlier submitted calls of the
 * session begin: these are answered as usual, and then end. Returns at once, TARN_OK also if there
 * is nothing to cancel; a generation's DONE follows what it had said. Tokens that were fed last and
 * are not yet computed are removed; earlier ones stay. Later calls are not affected. On a CPU DONE
 * comes before the end of the current step. That step, which takes seconds for a prompt, continues
 * only if other sessions have tokens in it; then the next call waits for its end. On a GPU DONE
 * comes at the end of the step. */
TARN_API int32_t tarn_session_cancel(tarn_session* session);

typedef struct tarn_session_info {
  uint32_t struct_size;
  int32_t generating;
  uint64_t n_tokens;        /* fed and generated */
  uint64_t n_computed;      /* tokens with KV: the progress of a prefill */
  uint64_t prefill_left_ns; /* estimated time for the rest of a prefill; 0: there is no prefill, or
                               its first step still runs */
  uint64_t reused_from_memory, reused_from_disk; /* as in DONE, so far */
} tarn_session_info;
/* The state after the last step or call. It does not wait for a running step, which may take
 * seconds, so one thread can show progress and cancel. */
TARN_API int32_t tarn_session_info_get(tarn_session* session, tarn_session_info* info_out);

enum { TARN_SESSION_IDLE = 0, TARN_SESSION_COMPUTING = 1, TARN_SESSION_GENERATING = 2 };

typedef struct tarn_session_row {
  uint32_t struct_size;
  int32_t state;
  tarn_session* session;
  void* user;
  int32_t priority;
  uint64_t n_tokens, n_computed; /* as in tarn_session_info */
} tarn_session_row;
/* Writes the open sessions, as tarn_session_info_get does, at most rows_max.
 * rows_out[0].struct_size is the size of each row. n_out is their number, also if it is larger. */
TARN_API int32_t tarn_session_list(tarn_engine* engine, tarn_session_row* rows_out,
                                   uint64_t rows_max, uint64_t* n_out);
/* Writes the session's tokens from `begin` on; n_out is the number written. */
TARN_API int32_t tarn_session_tokens(tarn_session* session, uint64_t begin, uint32_t* ids_out,
                                     uint64_t ids_max, uint64_t* n_out);
/* Waits until all fed tokens but the last are computed; timeout as in poll. TARN_OK also after a
 * cancel removed the rest. If the prefill stopped: TARN_IO_FAILED, the disk failed;
 * TARN_INVALID_REQUEST, memory and disk are full; the text names what is full. Its tokens stay
 * then, and the next feed or generate computes the missing KV. */
TARN_API int32_t tarn_session_wait(tarn_session* session, int32_t timeout_ms);

/* Keeps the first n_tokens and drops the others. TARN_INVALID_REQUEST: the session generates, or
 * has fewer. TARN_IO_FAILED: its KV could not be read from disk, and is recomputed. */
TARN_API int32_t tarn_session_truncate(tarn_session* session, uint64_t n_tokens);
/* Creates a second session with the same tokens and the same KV; full groups are shared, not
 * copied. Its user is NULL. TARN_INVALID_REQUEST: the session generates or computes.
 * TARN_WOULD_BLOCK: engine.sessions_max are open, or other sessions hold the KV now. */
TARN_API int32_t tarn_session_fork(tarn_session* session, tarn_session** session_out);

/* ---- Calls that return at once -------------------------------------------------------------- */

/* For a host with one event loop: submit calls, wait for one descriptor, take replies and events.
 *
 *   struct pollfd ready = {.fd = tarn_engine_fd(engine), .events = POLLIN};  // not -1
 *   tarn_submit_feed_text(session, text, text_bytes, TARN_ADD_SPECIAL, &my_feed);
 *   tarn_submit_generate(session, &options, &my_generate);
 *   while (poll(&ready, 1, -1) > 0 || errno == EINTR) {
 *     tarn_event event = TARN_INIT(tarn_event);
 *     int32_t status;
 *     while ((status = tarn_engine_take(engine, &event)) == TARN_OK) handle(&event);
 *     if (status != TARN_WOULD_BLOCK) break;  // the engine has ended: close it
 *   }
 *
 * Arguments are those of the blocking form, and a last `request`, which comes back in the reply.
 * What they point to (ids, texts, names, stop strings, biases, out-parameters) stays valid and
 * unchanged until the reply is taken, or tarn_close has returned on an engine that is not dead; an
 * options struct itself is copied. Read out-parameters once the reply is taken.
 *
 * TARN_OK: the call is queued, and exactly one reply comes. Otherwise nothing was queued and no
 * reply comes: TARN_INVALID_REQUEST, an argument is wrong by itself; TARN_WOULD_BLOCK, 256 calls of
 * the engine are unanswered or their replies not taken: submit it again once one is taken; and what
 * every call returns on an engine that is dead, lost, or not this process' own.
 *
 * Calls of one session, blocking ones too, are carried out in the order in which they were made; a
 * wait holds back no later call. Once a submitted call of a session has failed, later ones are
 * answered TARN_CANCELLED until its reply is taken: if a feed fails, a generate queued after it is
 * cancelled. Different sessions have no order. A destroy is carried out in any case: with it the
 * session's events end, DONE too, later calls are answered TARN_INVALID_REQUEST, and once its reply
 * is taken a new session may have the pointer. A timeout of tarn_submit_wait is noticed between two
 * steps. tarn_close drops what was not taken; nobody may wait for the descriptor by then.
 * tarn_session_cancel, _info_get and _list, tarn_piece, tarn_is_end and tarn_engine_plan wait for
 * no step, so they have no such form. Nor has tarn_submit_* any wait: it returns at once.
 */
TARN_API int32_t tarn_submit_create(tarn_engine* engine, const tarn_session_options* options,
                                    tarn_session** session_out, void* request);
TARN_API int32_t tarn_submit_destroy(tarn_session* session, void* request);
TARN_API int32_t tarn_submit_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids,
                                  void* request);
TARN_API int32_t tarn_submit_feed_text(tarn_session* session, const char* text, uint64_t text_bytes,
                                       uint32_t flags, void* request);
TARN_API int32_t tarn_submit_generate(tarn_session* session, const tarn_generate_options* options,
                                      void* request);
TARN_API int32_t tarn_submit_wait(tarn_session* session, int32_t timeout_ms, void* request);
TARN_API int32_t tarn_submit_tokens(tarn_session* session, uint64_t begin, uint32_t* ids_out,
                                    uint64_t ids_max, uint64_t* n_out, void* request);
TARN_API int32_t tarn_submit_truncate(tarn_session* session, uint64_t n_tokens, void* request);
TARN_API int32_t tarn_submit_fork(tarn_session* session, tarn_session** session_out, void* request);
TARN_API int32_t tarn_submit_tokenize(tarn_engine* engine, const char* text, uint64_t text_bytes,
                                      uint32_t flags, uint32_t* ids_out, uint64_t ids_max,
                                      uint64_t* n_out, void* request);
TARN_API int32_t tarn_submit_engine_status_get(tarn_engine* engine, tarn_engine_status* status_out,
                                               void* request);

/* A descriptor (eventfd) that is readable while tarn_engine_take has something, or the engine has
 * ended: level-triggered, the same one each time. For poll and epoll alone: do not read, write or
 * close it; it is closed with the engine. -1: refused, and tarn_error_text() says why. */
TARN_API int32_t tarn_engine_fd(tarn_engine* engine);
/* Takes the next reply, or else the next event of any session, and never waits. Replies come as
 * their calls ended, before events that follow from them; sessions with events are served in turn.
 * Any thread may take, and tarn_session_poll may read some sessions meanwhile: each event comes
 * once. TARN_WOULD_BLOCK: there is none now; TARN_INTERNAL, TARN_DEVICE_LOST, TARN_CANCELLED (it is
 * being closed): there will be none any more. event_out keeps its struct_size. */
TARN_API int32_t tarn_engine_take(tarn_engine* engine, tarn_event* event_out);

#ifdef __cplusplus
}
#endif
#endif
