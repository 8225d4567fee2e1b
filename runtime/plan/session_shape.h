// runtime/plan/session_shape.h
//
// What one session needs beside its KV: its state with the rings in which tokens and text wait for
// their reader, and the ids of its tokens.
#pragma once

#include "platform/base/checked.h"
#include "platform/base/types.h"

namespace tarn::plan {

inline constexpr u64 kSessionFixedBytes = 80 * kKiB;  // the engine asserts that it suffices
inline constexpr u64 kSessionTokenBytes = 4;          // for each token of the context

constexpr Checked session_bytes(u64 context_tokens) {
  return Checked(kSessionFixedBytes) + Checked(kSessionTokenBytes) * context_tokens;
}

}  // namespace tarn::plan
