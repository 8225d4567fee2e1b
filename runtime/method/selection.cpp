#include "runtime/method/selection.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::method {
namespace {

constexpr u64 kRankBytes = std::max(kernels::kTopKScratchBytes, kernels::kPqPairScratchBytes);

u64 lut_elems(const SelectionShape& shape) {
  return u64{shape.n_group_heads} * std::max(shape.lut_elems, kSelectionTileTokens);
}
// A middle of a few tokens may be two pages of Quest's.
u64 n_candidates(const SelectionShape& shape) { return std::max(shape.middle_tokens_max, 64u); }
u64 key_elems(const SelectionShape& shape) {
  return u64{2} * kSelectionTileTokens * shape.head_dim;
}

}  // namespace

// The same order as selection_scratch_bytes() adds it up in.
SelectionScratch carve_selection(const SelectionArgs& args, const SelectionShape& shape) {
  TARN_ASSERT(args.scratch.size() >= selection_scratch_bytes(shape));
  std::byte* at = args.scratch.data();
  const auto take = [&](u64 n_bytes) {
    std::byte* const piece = at;
    at += (n_bytes + 63) / 64 * 64;
    return piece;
  };
  const u64 n = n_candidates(shape);
  SelectionScratch scratch{};
  scratch.radix = take(kRankBytes);
  scratch.lut = reinterpret_cast<f32*>(take(lut_elems(shape) * sizeof(f32)));
  scratch.keys = reinterpret_cast<f32*>(take(key_elems(shape) * sizeof(f32)));
  scratch.scores = reinterpret_cast<f32*>(take(shape.n_group_heads * n * sizeof(f32)));
  scratch.weights = reinterpret_cast<f32*>(take(n * sizeof(f32)));
  scratch.places = reinterpret_cast<u32*>(take(n * sizeof(u32)));
  return scratch;
}

namespace {

void append_range(u32 begin, u32 end, const SelectionArgs& args, u32& n_out) {
  TARN_ASSERT(n_out + (end - begin) <= args.slots.size());
  for (u32 slot = begin; slot < end; ++slot) args.slots[n_out++] = slot;
}

}  // namespace

u32 compose_slots(const SelectionArgs& args, const u32* places, u32 n_places) {
  u32 n_out = 0;
  append_range(0, args.ranges.middle_begin, args, n_out);
  TARN_ASSERT(n_out + n_places <= args.slots.size());
  for (u32 i = 0; i < n_places; ++i) args.slots[n_out++] = args.ranges.middle_begin + places[i];
  append_range(args.ranges.middle_end, args.ranges.n_tokens, args, n_out);
  return n_out;
}

const f32* rank_of(const SelectionArgs& args, const SelectionScratch& scratch, u32 n) {
  if (args.query.n_heads == 1) return scratch.scores;
  args.table.pq_weigh({.scores = scratch.scores,
                       .scores_stride = n,
                       .weights = scratch.weights,
                       .n_tokens = n,
                       .n_heads = args.query.n_heads});
  return scratch.weights;
}

u32 compose_blocks(const SelectionArgs& args, u32 block_tokens, u32 first,
                   std::span<const u32> places) {
  const TokenRanges& s = args.ranges;
  u32 n_out = 0;
  append_range(0, s.middle_begin, args, n_out);
  for (const u32 place : places) {
    const u32 begin = (first + place) * block_tokens;
    append_range(std::max(begin, s.middle_begin), std::min(begin + block_tokens, s.middle_end),
                 args, n_out);
  }
  append_range(s.middle_end, s.n_tokens, args, n_out);
  return n_out;
}

u32 choose_best(const SelectionArgs& args, const SelectionScratch& scratch, const f32* values) {
  const u32 n_places = args.table.top_k({.values = values,
                                         .out = scratch.places,
                                         .scratch = scratch.radix,
                                         .n = args.ranges.n_middle(),
                                         .k = args.k});
  return compose_slots(args, scratch.places, n_places);
}

u64 selection_scratch_bytes(const SelectionShape& shape) {
  const u64 n = n_candidates(shape);
  const u64 pieces[] = {kRankBytes,
                        lut_elems(shape) * sizeof(f32),
                        key_elems(shape) * sizeof(f32),
                        shape.n_group_heads * n * sizeof(f32),
                        n * sizeof(f32),
                        n * sizeof(u32)};
  u64 sum = 0;
  for (const u64 n_bytes : pieces) sum += (n_bytes + 63) / 64 * 64;
  return sum;
}

}  // namespace tarn::method
