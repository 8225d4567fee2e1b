/* runtime/api/tarn_error.h: how a call ended, and the macros of the public headers. tarn.h, whose
 * rules hold here, includes it. */
#ifndef TARN_ERROR_H
#define TARN_ERROR_H
#include <stdint.h>

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
  TARN_DEVICE_LOST = 4,     /* the GPU is lost; only a new process can use it again */
  TARN_IO_FAILED = 5,       /* a read or a write failed, or the file is damaged */
  TARN_INTERNAL = 6,        /* one of our assertions failed; this engine is dead */
  TARN_INVALID_REQUEST = 7, /* the call cannot be served with these arguments or in this state */
  TARN_WOULD_BLOCK = 8,     /* no event yet, or a bound is reached: try again, or see the text */
  TARN_CANCELLED = 9,       /* the request was cancelled by its owner */
  TARN_UNSUPPORTED = 10,    /* valid, but not known to this build; the text says what */
  TARN_NOT_FINITE = 11,     /* the model produced a logit that is not a number */
  TARN_NOT_FOUND = 12       /* no session is kept under this name */
} tarn_status;

/* Why, for a program that acts on it: no program needs to look into a text. Behind a value stands
 * what `key` and the figures of tarn_error have. Values are stable: new ones are appended. */
typedef enum tarn_reason {
  TARN_REASON_NONE = 0,              /* the status says all that a program can act on */
  TARN_REASON_CONTEXT_TOO_LONG = 1,  /* n_prompt_tokens, n_ctx: shorten the prompt; estimated 1:
                                      * counted in messages that were too long to be rendered */
  TARN_REASON_BUSY_SESSIONS = 2,     /* sessions_max are open: try again when one is destroyed */
  TARN_REASON_BUSY_WAITING = 3,      /* waiting, retry_ms: waiting_max wait; try again then */
  TARN_REASON_BUSY_KV = 4,           /* other sessions hold the KV: try again */
  TARN_REASON_BUSY_CALLS = 5,        /* calls: take replies, then submit again */
  TARN_REASON_NOT_YET = 6,           /* no event, or not computed, within the time allowed */
  TARN_REASON_NO_MEMORY = 7,         /* key: the setting that bounds the memory for texts */
  TARN_REASON_BAD_FIELD = 8,         /* key: the argument or field, by its name in this header */
  TARN_REASON_BAD_SETTING = 9,       /* key: of the configuration */
  TARN_REASON_WRONG_STATE = 10,      /* the session or engine takes no such call now */
  TARN_REASON_NAME_NOT_FOUND = 11,   /* no session is kept under this name */
  TARN_REASON_NAME_IN_USE = 12,      /* by an open session, or for another text */
  TARN_REASON_NO_STORE = 13,         /* the engine keeps no sessions */
  TARN_REASON_STORE_HELD = 14,       /* another process or engine has the store open */
  TARN_REASON_STORE_UNREADABLE = 15, /* what was saved is damaged, or a newer version's */
  TARN_REASON_STORE_FULL = 16,       /* its room or its writes of today are used up */
  TARN_REASON_SAVED_OTHERWISE = 17,  /* key: the first setting that differs from the session's */
  TARN_REASON_NO_TEMPLATE = 18,      /* the model's file has no chat template */
  TARN_REASON_TEMPLATE_FAILED = 19   /* the chat template refuses these messages, or fails */
} tarn_reason;

typedef struct tarn_figure {
  const char* name; /* "": none */
  uint64_t value;
} tarn_figure;

/* A failure as a program reads it. Its texts are constants of the library. */
typedef struct tarn_error {
  uint32_t struct_size;
  int32_t status, reason; /* a tarn_status, a tarn_reason */
  const char* key;        /* "": none */
  tarn_figure figures[4]; /* those that tarn_error_text() shows */
} tarn_error;

/* The text of this thread's latest failure, valid until its next tarn_ call. Never NULL. */
TARN_API const char* tarn_error_text(void);
/* The same failure for a program. TARN_INVALID_REQUEST: error_out has no struct_size. */
TARN_API int32_t tarn_error_get(tarn_error* error_out);
/* The status' name, as in JSON output ("over_budget"). Never NULL. */
TARN_API const char* tarn_status_name(int32_t status);

#ifdef __cplusplus
}
#endif
#endif
