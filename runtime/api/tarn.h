/* runtime/api/tarn.h: the whole public interface of libtarn, C11. Version 0: it may still change.
 *
 * Tarn runs one quantised language model inside one fixed memory budget. This header is the manual.
 *
 *   tarn_open        reads the model, prints nothing, reserves every byte it will ever use
 *   tarn_session_*   a conversation: feed tokens or text, generate, fork, truncate
 *   tarn_close       gives everything back (but what a disk that does not answer still has)
 *
 * Link with:  cc host.c libtarn.a -luring -lstdc++ -lpthread -lm
 * and, if it was built with CUDA, with -lcudart_static -ldl -lrt before -lpthread. The GPU's driver
 * is not linked: where there is none, the CPU computes.
 *
 * A guest in your process. The library installs no signal handler, reads no environment variable,
 * changes no locale, prints nothing, and never ends the process. It starts its own threads (one
 * that drives the engine, and workers), blocks all signals on them, and exports only names that
 * begin with tarn_. Two engines in one process do not know of each other.
 *
 * Threads. Every function may be called from any thread. Calls on one engine are carried out one
 * after another by the engine's own thread; a call waits for its turn. One session wants one
 * reader. The hooks for log, progress and failure run on the engine's threads: what they call on
 * their own engine is refused (TARN_INVALID_REQUEST), and tarn_close does nothing there.
 *
 * Processes. An engine belongs to the process that opened it. In a child of fork(2) every call on
 * it returns at once with TARN_INVALID_REQUEST; tarn_is_end returns 0, and tarn_close and
 * tarn_session_destroy give nothing back. The child can open an engine of its own. A child that was
 * forked in a hook for log, progress or failure must end there, by exec or _exit.
 *
 * Errors. Functions return a tarn_status; 0 is success. tarn_error_text() then has one sentence
 * that names the remedy. Out-parameters are zeroed on failure. If an assertion inside the library
 * fails, the fatal hook is called once, the engine is dead, and every later call on it that needs
 * its thread returns TARN_INTERNAL; the process goes on. A count is compared with its limit before
 * anything that it counts is read.
 *
 * Structs. Set struct_size to sizeof the struct (TARN_INIT does), so that later versions can append
 * fields; fields you leave zero take their default. A field or a bit of `flags` that this version
 * does not know must be zero: anything else is TARN_INVALID_REQUEST.
 */
#ifndef TARN_H
#define TARN_H
#include <stddef.h>
#include <stdint.h>

#define TARN_VERSION_MAJOR 0
#define TARN_VERSION_MINOR 1

#if defined(__GNUC__)
#define TARN_API __attribute__((visibility("default")))
#else
#define TARN_API
#endif

/* Initialises a struct of this header: tarn_options options = TARN_INIT(tarn_options); */
#ifdef __cplusplus
#define TARN_INIT(type)                \
  ([] {                                \
    type value{};                      \
    value.struct_size = sizeof(value); \
    return value;                      \
  }())
#else
#define TARN_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Values are stable: new ones are appended. */
typedef enum tarn_status {
  TARN_OK = 0,
  TARN_INVALID_CONFIG = 1,  /* a key or an option is unknown, missing or out of range */
  TARN_INVALID_MODEL = 2,   /* the model file contradicts itself or the format */
  TARN_OVER_BUDGET = 3,     /* the plan does not fit; the text says what to lower, and to what */
  TARN_DEVICE_LOST = 4,     /* the GPU is gone; only a new process can use it again */
  TARN_IO_FAILED = 5,       /* a read or a write failed, or what lies there is damaged */
  TARN_INTERNAL = 6,        /* one of our assertions failed; this engine is dead */
  TARN_INVALID_REQUEST = 7, /* the call, or what it names, cannot be served as it is */
  TARN_WOULD_BLOCK = 8,     /* nothing yet, or something bounded is used up now: try again, or
                               free what the text says */
  TARN_CANCELLED = 9,       /* the request was cancelled by its owner */
  TARN_UNSUPPORTED = 10,    /* valid, but not known to this build; the text says what */
  TARN_NOT_FINITE = 11,     /* the model produced a logit that is not a number */
  TARN_NOT_FOUND = 12       /* nothing of this name is kept */
} tarn_status;

/* Owned by the caller from tarn_open to tarn_close. */
typedef struct tarn_engine tarn_engine;
/* Owned by the caller from create or fork to destroy; dies with its engine at the latest. */
typedef struct tarn_session tarn_session;

/* level: 0 debug, 1 info, 2 warning, 3 error. One line, valid during the call. */
typedef void (*tarn_log_fn)(void* context, int32_t level, const char* text);
/* Called at most once an engine, on the thread that failed; which is parked when it returns. */
typedef void (*tarn_fatal_fn)(void* context, const char* condition, const char* file,
                              uint32_t line);
/* done and total in bytes while the weights are read. Non-zero gives up: TARN_CANCELLED. */
typedef int32_t (*tarn_progress_fn)(void* context, uint64_t done, uint64_t total);

typedef struct tarn_options {
  uint32_t struct_size;
  int32_t log_level;       /* least level that is reported: 0 debug, 1 info, 2 warning, 3 error */
  const char* model_path;  /* a GGUF file */
  const char* config_toml; /* configuration as text (keys: configs/README.md); NULL: defaults.
                               memory.budget_bytes has no default: set it there or below */
  uint64_t budget_bytes;   /* ceiling over all memory of the engine; 0: as in config_toml */
  tarn_log_fn log;
  void* log_context;
  tarn_fatal_fn fatal;
  void* fatal_context;
  tarn_progress_fn progress; /* called on the engine's thread, while tarn_open waits */
  void* progress_context;
  const uint32_t* cpus; /* of the process's CPUs, those for the engine's threads; NULL: all */
  uint32_t n_cpus;
} tarn_options;

/* Reserves every byte the engine will use and reads the weights, or fails having kept nothing. */
TARN_API int32_t tarn_open(const tarn_options* options, tarn_engine** engine_out);
/* Cancels what runs, joins the threads, gives the memory back. NULL is allowed. Sessions die with
 * it; of kept ones the store has the last checkpoint, so call tarn_session_save first. Calls of
 * other threads that are inside come back with TARN_CANCELLED first; none may begin any more. Not
 * from the callback of tarn_session_run, which is such a call.
 * An engine that is dead is given up, not freed: its parked threads still stand in its memory. */
TARN_API void tarn_close(tarn_engine* engine);

/* Text of this thread's latest failure; valid until its next tarn_ call. Never NULL. */
TARN_API const char* tarn_error_text(void);
/* The status' name, as JSON output carries it ("over_budget"). Never NULL. */
TARN_API const char* tarn_status_name(int32_t status);

/* ---- The memory plan ------------------------------------------------------------------------ */

typedef struct tarn_region {
  char name[32];
  char space[16]; /* device, host, disk */
  char kind[16];  /* weights, kv, codes, scratch, heap, io, driver, other */
  uint64_t bytes;
  char formula[256]; /* how the bytes came about */
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

/* What tarn_open would reserve, without loading anything: reads the file's directory only. A plan
 * that does not fit is not an error here: see `fits`; tarn_error_text() then says what to lower. */
TARN_API int32_t tarn_plan_memory(const tarn_options* options, tarn_plan* plan_out);
/* The plan of an open engine. */
TARN_API int32_t tarn_engine_plan(tarn_engine* engine, tarn_plan* plan_out);

/* ---- Status --------------------------------------------------------------------------------- */

typedef struct tarn_engine_status {
  uint32_t struct_size;
  int32_t dead;    /* 1 after a failed assertion */
  char device[16]; /* cpu, cuda */
  char isa[16];    /* avx512, avx2, generic */
  char io[16];     /* io_uring, threads */
  char arch[16];   /* llama, qwen2, qwen3 */
  int32_t memory_locked;
  uint32_t n_workers;
  uint32_t n_sessions, sessions_max;
  uint32_t n_vocab;
  uint64_t context_tokens;                /* KV slots planned for in all */
  uint64_t kv_groups_free, kv_groups_max; /* a group is kv.page_tokens slots of one layer */
  uint64_t n_params;
  uint64_t weights_bytes; /* of the file's tensors */
  uint64_t load_ns;       /* reading the weights */
  uint64_t n_steps;       /* since the engine was opened */
  uint64_t n_prefill_rows, n_decode_rows;
  uint64_t prefill_ns, decode_ns;            /* time in steps with, and without, prefill rows */
  uint64_t weight_bytes_read, kv_bytes_read; /* by all steps */
  char select[16];  /* which K and V a step reads: full, pq, ... (select.method) */
  int32_t verified; /* 1: exact, or as tarn verify has passed it with this model and these settings
                       (select.verified). 0: lossy, and nobody has */
  /* How fast the GPU reads its own memory and the host's, measured when the engine was opened; 0 on
   * the CPU, or where the GPU reaches no host memory. */
  uint64_t gpu_bytes_per_s, gpu_shared_bytes_per_s;
  int32_t gpu_promotes_without_copy; /* 1: the two are as good as equal */
  /* What has KV beyond memory and kept sessions: none, on; read-only after its disk refused writes,
   * off after it failed altogether, or when its disk could not be used from the start. The log has
   * said why; opening the engine anew tries again. */
  char store[16];
  /* 1: parts of the store's file were unreadable when the engine was opened, so a saved session may
   * be TARN_NOT_FOUND, or computed anew in part, though nobody deleted it. */
  int32_t sessions_may_be_lost;
  /* As in DONE, of all decode steps since the engine was opened. */
  uint64_t select_steps;
  double kv_read_ratio;
} tarn_engine_status;

TARN_API int32_t tarn_engine_status_get(tarn_engine* engine, tarn_engine_status* status_out);

/* ---- Text ----------------------------------------------------------------------------------- */

enum {
  TARN_ADD_SPECIAL = 1,  /* BOS and EOS, as the model's file says */
  TARN_PARSE_SPECIAL = 2 /* control tokens in the text become themselves: trusted text only */
};

/* Ids of `text` (any bytes) into ids_out. n_out is the count, also when ids_max is too small: then
 * the answer is TARN_INVALID_REQUEST and nothing was written; ids_max = 0 asks for the count. One
 * call takes 8 bytes of text for each token of the context, 16 KiB at least and
 * engine.text_bytes_max (256 KiB) at most: cut longer ones at line breaks. */
TARN_API int32_t tarn_tokenize(tarn_engine* engine, const char* text, uint64_t text_bytes,
                               uint32_t flags, uint32_t* ids_out, uint64_t ids_max,
                               uint64_t* n_out);
/* The bytes one token stands for; control tokens as they are written in the vocabulary. Not
 * terminated. n_out is the length, also when bytes_max is too small. */
TARN_API int32_t tarn_piece(tarn_engine* engine, uint32_t token, char* bytes_out,
                            uint64_t bytes_max, uint64_t* n_out);
/* 1 if the model ends its turn with this token; 0 if not, and where the call is refused. */
TARN_API int32_t tarn_is_end(tarn_engine* engine, uint32_t token);

/* ---- Sessions ------------------------------------------------------------------------------- */

/* An empty one. TARN_WOULD_BLOCK: engine.sessions_max are open. */
TARN_API int32_t tarn_session_create(tarn_engine* engine, tarn_session** session_out);
/* Cancels, and gives the KV back. NULL is allowed. What is kept of it under a name stays: an answer
 * that had ended, or an input that was computed, is written first, with store.checkpoint_ms > 0,
 * which waits for the disk; else what was before. */
TARN_API void tarn_session_destroy(tarn_session* session);

/* Appends tokens. KV for them is set aside at once, or nothing happens (TARN_WOULD_BLOCK: other
 * sessions hold the KV now; TARN_INVALID_REQUEST: it can never fit, and no id was read). All but
 * the last are computed in the background from now on; the last one waits for what comes next. Not
 * while the session generates. */
TARN_API int32_t tarn_session_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids);
/* tokenize and feed in one call, with the limits and errors of both. */
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
  float repetition_penalty;     /* 0 or 1: off */
  float frequency_penalty;      /* 0: off */
  float presence_penalty;       /* 0: off */
  uint32_t penalty_last_tokens; /* window of the three penalties; 0: 64; at most 4096 */
  uint64_t seed;                /* of the draws; the same seed gives the same tokens */
  const tarn_logit_bias* logit_biases;
  uint32_t n_logit_biases;  /* at most 256 */
  uint32_t n_stops;         /* at most 16, each 1..128 bytes */
  const char* const* stops; /* UTF-8; the text ends before the first of them that appears */
  uint32_t n_top_logprobs;  /* alternatives reported with each token, at most 20 */
  int32_t ignore_end;       /* 1: go on after the model's end token */
  int32_t no_logprobs;      /* 1: tokens come without logprob; greedy ones come faster then, on
                                   a GPU most of all: their logits stay there */
} tarn_generate_options;

enum {
  TARN_FINISH_NONE = 0,
  TARN_FINISH_END = 1,       /* the model ended its turn ("stop") */
  TARN_FINISH_STOP = 2,      /* a stop string ("stop") */
  TARN_FINISH_LENGTH = 3,    /* max_tokens, or the KV is full ("length") */
  TARN_FINISH_CANCELLED = 4, /* ("cancelled") */
  TARN_FINISH_ERROR = 5      /* see tarn_event.status ("error") */
};
TARN_API const char* tarn_finish_name(int32_t finish);

enum { TARN_EVENT_TOKEN = 1, TARN_EVENT_TEXT = 2, TARN_EVENT_DONE = 3 };

typedef struct tarn_logprob {
  uint32_t token;
  float logprob; /* natural logarithm, of the model's own distribution (before the sampler) */
} tarn_logprob;

/* One token, a piece of text, or the end. Text is valid UTF-8 at every moment; it may lag behind
 * the tokens (an unfinished character, the beginning of a stop string), and all of it comes before
 * DONE. */
typedef struct tarn_event {
  uint32_t struct_size;
  int32_t type;
  uint32_t token; /* TOKEN */
  float logprob;  /* TOKEN; 0 with no_logprobs */
  uint32_t n_top; /* TOKEN: entries of top, best first */
  tarn_logprob top[20];
  uint32_t text_bytes;   /* TEXT */
  char text[512];        /* TEXT; terminated, may hold zero bytes before its end */
  int32_t finish;        /* DONE */
  int32_t status;        /* DONE: a tarn_status, 0 unless finish is TARN_FINISH_ERROR; then
                           tarn_session_wait has the text, until the session goes on */
  uint32_t n_tokens;     /* DONE: generated */
  uint64_t prefill_ns;   /* DONE: from the first feed since the last DONE to the first token */
  uint64_t decode_ns;    /* DONE: from the first token to the last */
  uint64_t select_steps; /* DONE: decode steps that chose which K and V they read (select.method);
                            0: all of them read everything */
  double kv_read_ratio;  /* DONE: slots in the decode steps' budget, of those that they could see,
                           0..1. The first token is no decode step; 1 where there is none */
} tarn_event;

/* Starts to generate after what was fed; at least one token must have been fed. Read the events
 * with tarn_session_poll until DONE: before that, nothing new is begun. A reader that stays away
 * stops its own session, nobody else's. */
TARN_API int32_t tarn_session_generate(tarn_session* session, const tarn_generate_options* options);
/* The next event. Waits up to timeout_ms (-1: for ever); TARN_WOULD_BLOCK when there is none by
 * then, TARN_INVALID_REQUEST when the session generates nothing. */
TARN_API int32_t tarn_session_poll(tarn_session* session, int32_t timeout_ms,
                                   tarn_event* event_out);
/* The same with a callback, on this thread, until DONE. A non-zero return cancels: then DONE alone
 * follows, whose finish is CANCELLED unless the generation had come to its end by then. Returns
 * what tarn_session_generate did, or DONE's status. */
typedef int32_t (*tarn_event_fn)(void* context, const tarn_event* event);
TARN_API int32_t tarn_session_run(tarn_session* session, const tarn_generate_options* options,
                                  tarn_event_fn on_event, void* context);
/* Asks a running generation, or what is left of a prefill, to end. Returns at once; a generation's
 * DONE follows. Tokens that were fed last and are not yet computed are taken back; what the session
 * had before stays. Without effect on what is fed or begun later. On a CPU DONE comes within the
 * step under way, which takes seconds for a prompt, and goes on only if others' tokens are in it:
 * what is called next has its turn behind it. On a GPU DONE comes with the end of the step. */
TARN_API int32_t tarn_session_cancel(tarn_session* session);

typedef struct tarn_session_info {
  uint32_t struct_size;
  int32_t generating;
  uint64_t n_tokens;        /* fed and generated */
  uint64_t n_computed;      /* of them in the KV: progress of a prefill */
  uint64_t prefill_left_ns; /* what the rest of a prefill will take, estimated from what of it was
                               read; 0: nothing is being read, or its first step still goes on */
} tarn_session_info;
/* As of the last step or call: a step that takes seconds is not waited for, so that a host can show
 * progress and cancel from one thread. */
TARN_API int32_t tarn_session_info_get(tarn_session* session, tarn_session_info* info_out);
/* The session's tokens from `begin`; n_out is how many were written. */
TARN_API int32_t tarn_session_tokens(tarn_session* session, uint64_t begin, uint32_t* ids_out,
                                     uint64_t ids_max, uint64_t* n_out);
/* Waits until all that was fed but the last token is computed; timeout as in poll. TARN_OK also
 * where a cancel took the rest back. Where the session gave up on the way: TARN_IO_FAILED, the disk
 * failed; TARN_INVALID_REQUEST, memory and disk are full; the text says of what. Its tokens stay
 * then, and the next feed or generate computes what is missing. */
TARN_API int32_t tarn_session_wait(tarn_session* session, int32_t timeout_ms);

/* Keeps the first n_tokens. TARN_INVALID_REQUEST: it generates, or has fewer. TARN_IO_FAILED: its
 * KV could not be read back, and is computed anew. */
TARN_API int32_t tarn_session_truncate(tarn_session* session, uint64_t n_tokens);
/* A second session with the same tokens and the same KV; full groups are shared, not copied.
 * TARN_INVALID_REQUEST: it generates or computes. TARN_WOULD_BLOCK: engine.sessions_max are open,
 * or other sessions hold the KV now. */
TARN_API int32_t tarn_session_fork(tarn_session* session, tarn_session** session_out);

/* ---- Sessions that outlive the engine ------------------------------------------------------- */

/* They need store.path, store.quota_bytes and store.sessions = true in the configuration. A name is
 * 1 to 128 bytes, and belongs to one open session at a time. What is kept is a cache on disk with
 * room for store.kept_tokens beside the open ones: the longest unused gives way when it is full,
 * and is then TARN_NOT_FOUND or computed anew. Names are yours to remember; `tarn sessions --store
 * DIR --json` lists them while no engine has the folder open. */

/* From now on checkpoints of the session are written under this name while it goes on, and when an
 * answer ends: a crash costs what it did in the last store.checkpoint_ms and one step, and of an
 * answer under way the tokens behind the last full page (kv.page_tokens). Where a step of a
 * prompt waits for the disk longer than it computes, it takes up to twice the time in which the
 * disk reads what lies there. TARN_INVALID_REQUEST: no sessions are kept, or the name is not one or
 * another open session's. */
TARN_API int32_t tarn_session_keep(tarn_session* session, const char* name);
/* The same, and all of the session is on disk, where it outlives a power cut, when this returns.
 * Also while it computes or generates: it goes on afterwards. What lies on disk already is not
 * written again. Errors as before, and TARN_IO_FAILED: the disk refused it, or is off;
 * TARN_WOULD_BLOCK: the store is full of what open sessions hold, or the day's writes are used up
 * (store.daily_write_bytes). What was kept before is there still then. */
TARN_API int32_t tarn_session_save(tarn_session* session, const char* name);

typedef struct tarn_restored {
  uint32_t struct_size;
  int32_t cut_off;     /* 1: it was computing or generating when it last came to disk, or a
                          checkpoint (no save) came before anybody asked for an answer to what was
                          fed last. Restored and asked for nothing, it stays so */
  uint64_t n_tokens;   /* as in tarn_session_info */
  uint64_t n_computed; /* of them; the rest is being computed anew */
  uint64_t turn_begin; /* where what was fed last begins: with cut_off, to be gone on with by
                          truncating to its end, which is turn_begin and the number of ids that
                          were fed, and generating with the same options */
  uint64_t took_ns;    /* of this call */
} tarn_restored;
/* A new session that goes on where the one of this name was last saved, or had its last checkpoint,
 * bit for bit, under the same name. (With a select.method other than "full" it does so under the
 * settings that it was saved with; under others, or where a part of its KV is lost, what selection
 * left in it is computed anew, exactly, and an index made of all there is.) TARN_NOT_FOUND: there
 * is none; TARN_INVALID_REQUEST: it is of another model or of other settings, and the text says
 * which, or it is open, or longer than the context; TARN_WOULD_BLOCK: engine.sessions_max are open,
 * or others hold the KV now; TARN_IO_FAILED: it is damaged. restored_out may be NULL. */
TARN_API int32_t tarn_session_restore(tarn_engine* engine, const char* name,
                                      tarn_session** session_out, tarn_restored* restored_out);

/* A saved session as one file, to be kept elsewhere or imported by another engine: as it was saved
 * last, tokens and what the store has of its KV. The file bears its name when it is whole and on
 * the disk, and takes the place of what had that name; a failure leaves nothing there.
 * TARN_NOT_FOUND: there is none of this name; TARN_IO_FAILED: reading it, or writing, failed. These
 * three calls hold up all sessions of the engine until they end. */
TARN_API int32_t tarn_session_export(tarn_engine* engine, const char* name, const char* path);
/* Takes an exported session into the store, under `name`, or its own name where that is NULL; it is
 * then restored like any other. Every byte is checked first: TARN_INVALID_REQUEST: it is of another
 * model or of other settings, and the text says which, or the name is taken; TARN_IO_FAILED: it is
 * damaged. A failure leaves nothing of it in the store. Checksums find damage, not deceit: import
 * from those only whom you would give the store itself. */
TARN_API int32_t tarn_session_import(tarn_engine* engine, const char* path, const char* name);
/* A saved session, of no open one's name, goes from the store, with the KV that no other saved
 * session shares; its bytes stay in the store's file until they are written over. TARN_NOT_FOUND:
 * there is none; TARN_INVALID_REQUEST: it is open. */
TARN_API int32_t tarn_session_delete(tarn_engine* engine, const char* name);

#ifdef __cplusplus
}
#endif
#endif
