// Which tokens of a blended prompt are computed anew: of those with transplanted KV the share whose
// values differ most from what the prompt would give them, and all others (CacheBlend,
// arXiv:2405.16444, sections 4.2 and 4.3).
//
// The choice is made once, at the check layer, by V alone, as the authors' code does; their paper
// filters anew in each layer. Of the two this one is kept because it is as good
// (runtime/DECISIONS.md), and lets the chosen tokens be ordinary rows of a prefill.
//
//   deviation   f32, by token: the sum over KV heads and dims of (V - transplanted V)^2, >= +0
//   number      floor(recompute * transplanted tokens), over all chunks; ties: the earlier token
//   choice      stands in the signs of the deviations: a token with a negative one, -0 too, is
//               computed
//   time        32 passes over the tokens; no memory
#pragma once

#include <cmath>
#include <span>

#include "runtime/reuse/blend/chunks.h"

namespace tarn::reuse {

// From the first chunk's begin to the last one's end; returns how many with transplanted KV are
// chosen.
u32 choose_rows(std::span<const Chunk> chunks, std::span<f32> deviation);

// A measurement that writes over the deviations of the chunks' tokens, >= +0.
using ScoreRows = void (*)(std::span<const Chunk> chunks, std::span<f32> deviation);

inline bool is_chosen(f32 deviation) { return std::signbit(deviation); }

}  // namespace tarn::reuse
