// Which tokens of a blended prompt are computed anew: of those with placed KV the share whose
// values differ most from what the prompt would give them, and all others (CacheBlend,
// arXiv:2405.16444, sections 4.2 and 4.3).
//
// The choice is made once, at the check layer, by V alone, as the authors' code does; their paper
// filters anew in each layer. Of the two this one is kept because it is as good
// (runtime/DECISIONS.md), and lets the chosen tokens be ordinary rows of a prefill.
//
//   deviation   [n_tokens] f32, the sum over KV heads and dims of (V - placed V)^2; NaN: infinite
//   number      floor(recompute * placed tokens), over all chunks; ties go to the earlier token
//   memory      lent; no heap
#pragma once

#include <span>

#include "runtime/method/compute/chunks.h"

namespace tarn::method {

// Sets is_chosen[t] of every token from the first chunk's begin to the last one's end; returns how
// many with placed KV are. `order` has room for as many tokens as the chunks have.
u32 choose_rows(std::span<const Chunk> chunks, std::span<const f32> deviation, std::span<u32> order,
                std::span<bool> is_chosen);

}  // namespace tarn::method
