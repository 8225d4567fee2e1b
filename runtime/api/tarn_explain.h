/* runtime/api/tarn_explain.h: what the load controller decided, for tarn.h, whose rules hold here
 * too.
 *
 *   tarn_session_explain   of the session's last input: which choice, from which numbers, and what
 *                          the other one would have cost
 *
 * Times are expected ones, in seconds: of box.profile (tarn calibrate), corrected by what steps and
 * reads took since the engine was opened. Without a profile they are 0, KV on the disk is read, and
 * the configured share of chunks is computed.
 */
#ifndef TARN_EXPLAIN_H
#define TARN_EXPLAIN_H
#include "runtime/api/tarn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tarn_explanation {
  uint32_t struct_size;
  /* KV of the input that lay in a store: read, or computed anew but for its first page. */
  int32_t kv_loaded;
  uint32_t tokens, tokens_in_memory, tokens_on_disk; /* when it got its place; 0: none decided */
  double load_s, compute_s;                          /* of the whole input, read and computed */
  /* Chunks (tarn_chunks.h). */
  float recompute;                             /* the share that is computed anew; 1 without any */
  float recompute_least;                       /* what TARN_RECOMPUTE_AUTO means at least */
  uint32_t chunk_tokens, chunk_tokens_on_disk; /* the latter known where adaptive is 1 */
  double chunk_load_s, chunk_prefill_s;        /* reading chunks; the whole prompt without them */
  /* What was learned: times as long as the profile says. */
  double prefill_factor, disk_factor;
  int32_t adaptive;     /* 1: control.quality = "adaptive" */
  double chunk_blend_s; /* the whole prompt, its chunks blended by `recompute` */
} tarn_explanation;

/* Returns at once, as tarn_session_info_get does: after the last step or call. */
TARN_API int32_t tarn_session_explain(tarn_session* session, tarn_explanation* explanation_out);

#ifdef __cplusplus
}
#endif
#endif
