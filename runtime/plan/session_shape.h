// runtime/plan/session_shape.h
//
// What one session needs beside its KV: the ids of its tokens with what belongs to each, what the
// sampler and the detokenizer keep, and the ring in which text waits for its reader.
#pragma once

#include "platform/base/checked.h"
#include "platform/base/types.h"

namespace tarn::plan {

inline constexpr u64 kSessionFixedBytes = 64 * kKiB;  // state and output ring
inline constexpr u64 kSessionTokenBytes = 12;         // for each token of the context
inline constexpr u64 kSessionVocabBytes = 8;          // for each token of the vocabulary

constexpr Checked session_bytes(u64 context_tokens, u64 n_vocab) {
  return Checked(kSessionFixedBytes) + Checked(kSessionTokenBytes) * context_tokens +
         Checked(kSessionVocabBytes) * n_vocab;
}

}  // namespace tarn::plan
