/* runtime/api/tarn_chunks.h: prompts of passages in any order, for tarn.h, whose rules hold here
 * too.
 *
 *   tarn_session_feed_parts   feeds texts behind each other, some of which are chunks
 *
 * A prefix's KV is reused by every feed. A passage that was read before at another place is no
 * prefix. As a chunk its KV is computed alone, behind BOS where the vocabulary begins with it, and
 * found again by its tokens, in any order with others. It is placed where the chunk stands now, and
 * a share of its tokens is computed anew: those whose values differ most from what the whole prompt
 * gives them (CacheBlend, arXiv:2405.16444). What follows is approximate, the more so the smaller
 * the share. Only whole pages (kv.page_tokens) are placed; the rest of a chunk is computed, and so
 * is a chunk that is too short for a page. A chunk that stands where it would be computed alone,
 * first behind BOS, is exact. Where a chunk's KV was found changes no token of an answer.
 *
 * While a session with chunks is open its KV stays: others do not get its room.
 */
#ifndef TARN_CHUNKS_H
#define TARN_CHUNKS_H
#include "runtime/api/tarn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A text, or ids where text is NULL. Borrowed until the call is answered. */
typedef struct tarn_part {
  uint32_t struct_size;
  int32_t is_chunk; /* 1: a passage. Control tokens written in it stay text */
  const char* text;
  uint64_t text_bytes;
  const uint32_t* ids;
  uint64_t n_ids;
} tarn_part;

/* The share that tarn verify --reuse found for this model (reuse.recompute_percent); all tokens
 * where none was found. */
#define TARN_RECOMPUTE_AUTO (-1.0f)

/* Feeds the parts' tokens, each part tokenized for itself; TARN_ADD_SPECIAL puts BOS in front of
 * the first one. `recompute` is the share of the chunks' placed tokens that is computed anew: 0
 * computes none of them, 1 is tarn_session_feed. Errors are those of that call;
 * TARN_INVALID_REQUEST also: a chunk is empty, a session has more than 128 chunks, recompute is no
 * share; TARN_UNSUPPORTED: reuse.prefix is false, and recompute is less than 1. */
TARN_API int32_t tarn_session_feed_parts(tarn_session* session, const tarn_part* parts,
                                         uint32_t n_parts, float recompute, uint32_t flags);
TARN_API int32_t tarn_submit_feed_parts(tarn_session* session, const tarn_part* parts,
                                        uint32_t n_parts, float recompute, uint32_t flags,
                                        void* request);

#ifdef __cplusplus
}
#endif
#endif
