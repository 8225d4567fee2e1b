#include "runtime/reuse/blend/row_choice.h"

#include <bit>

#include "platform/base/assert.h"

namespace tarn::reuse {
namespace {

template <class Fn>
void each_placed(std::span<const Chunk> chunks, Fn&& fn) {
  for (const Chunk& chunk : chunks) {
    for (u32 token = chunk.begin; token < chunk.end; ++token) fn(token);
  }
}

}  // namespace

// Chooses rows by the bits of floats >= 0, which ascend as they do.
u32 choose_rows(std::span<const Chunk> chunks, std::span<f32> deviation) {
  TARN_ASSERT(!chunks.empty());
  const auto bits = [&](u32 token) { return std::bit_cast<u32>(deviation[token]); };
  u32 n = 0;
  each_placed(chunks, [&](u32) { ++n; });
  const f64 share = std::clamp(f64{chunks.front().recompute}, 0.0, 1.0);
  const u32 n_chosen = static_cast<u32>(std::floor(share * n));
  const auto n_from = [&](u32 least) {
    u32 n_found = 0;
    each_placed(chunks, [&](u32 token) { n_found += u32{bits(token) >= least}; });
    return n_found;
  };
  u32 bound = 0;  // the largest that n_chosen tokens reach, at least
  for (u32 bit = u32{1} << 31; bit > 0; bit >>= 1) {
    if (n_from(bound | bit) >= n_chosen) bound |= bit;
  }
  u32 n_ties = n_chosen - (n_chosen > 0 && bound < ~u32{0} ? n_from(bound + 1) : 0);
  for (u32 token = chunks.front().begin, i = 0; token < chunks.back().end; ++token) {
    if (token >= chunks[i].end) ++i;
    const bool is_placed = token >= chunks[i].begin;
    const bool ties = is_placed && n_ties > 0 && bits(token) == bound;
    const bool is_large = n_chosen > 0 && bits(token) > bound;
    if (ties) --n_ties;
    if (!is_placed || ties || is_large) deviation[token] = -deviation[token];
  }
  return n_chosen;
}

}  // namespace tarn::reuse
