#include "runtime/method/read/oracle.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::method {
namespace {

// Exact scores of the middle, in attention's own order of additions: keys of a tile as columns,
// which makes them a codebook of one sub-space.
void score_exactly(const SelectionArgs& args, const KeyPages& keys,
                   const SelectionScratch& scratch) {
  const u32 n = args.ranges.n_middle(), d = keys.head_dim;
  f32* columns = scratch.keys + u64{kSelectionTileTokens} * d;
  for (u32 begin = 0; begin < n; begin += kSelectionTileTokens) {
    const u32 n_tile = std::min(kSelectionTileTokens, n - begin);
    keys.load(args.table, args.ranges.middle_begin + begin, n_tile, scratch.keys);
    for (u32 t = 0; t < kSelectionTileTokens; ++t) {
      for (u32 i = 0; i < d; ++i) {
        columns[u64{i} * kSelectionTileTokens + t] =
            t < n_tile ? scratch.keys[u64{t} * d + i] : 0.0f;
      }
    }
    args.table.pq_lut({.q = args.query.q,
                       .q_stride = d,
                       .codebook = columns,
                       .lut = scratch.lut,
                       .n_heads = args.query.n_heads,
                       .n_subspaces = 1,
                       .dims = d,
                       .n_padded = kSelectionTileTokens});
    for (u32 h = 0; h < args.query.n_heads; ++h) {
      for (u32 t = 0; t < n_tile; ++t) {
        scratch.scores[u64{h} * n + begin + t] =
            scratch.lut[u64{h} * kSelectionTileTokens + t] * args.query.scale;
      }
    }
  }
}

}  // namespace

u32 select_oracle(const SelectionArgs& args, const KeyPages& keys) {
  const SelectionScratch scratch = carve_selection(args, selection_shape(args, keys.head_dim, 0));
  score_exactly(args, keys, scratch);
  return choose_best(args, scratch, rank_of(args, scratch, args.ranges.n_middle()));
}

}  // namespace tarn::method
