#include "runtime/method/read/pq.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "runtime/method/select_shape.h"

namespace tarn::method {
namespace {

// By the sums of the tokens' weights, of one head too: scores do not add up.
u32 choose_blocks(const SelectionArgs& args, const SelectionScratch& scratch) {
  const TokenRanges& s = args.ranges;
  const u32 n = s.n_middle(), n_block = args.block_tokens;
  if (n == 0) return compose_slots(args, nullptr, 0);
  args.table.pq_weigh({.scores = scratch.scores,
                       .scores_stride = n,
                       .weights = scratch.weights,
                       .n_tokens = n,
                       .n_heads = args.query.n_heads});
  const u32 first = s.middle_begin / n_block;
  const u32 n_blocks = (s.middle_end + n_block - 1) / n_block - first;
  f32* sums = scratch.scores;  // they are weights by now
  std::fill_n(sums, n_blocks, 0.0f);
  for (u32 i = 0; i < n; ++i) sums[(s.middle_begin + i) / n_block - first] += scratch.weights[i];
  const u32 n_chosen = args.table.top_k({.values = sums,
                                         .out = scratch.places,
                                         .scratch = scratch.radix,
                                         .n = n_blocks,
                                         .k = args.k / n_block});
  return compose_blocks(args, n_block, first, {scratch.places, n_chosen});
}

// The chosen slots, each by its stand-in.
void misplace(const CodeControl& control, const TokenRanges& ranges, std::span<u32> slots) {
  for (u32& slot : slots) {
    slot = ranges.middle_begin + control.instead_of(slot - ranges.middle_begin, ranges.n_middle());
  }
  std::sort(slots.begin(), slots.end());
}

}  // namespace

u32 select_pq(const SelectionArgs& args, const PqIndex& index) {
  const PqShape& shape = index.shape();
  TARN_ASSERT(index.slot_begin() == args.ranges.middle_begin);
  TARN_ASSERT(index.n_tokens() == args.ranges.n_middle());
  const SelectionScratch scratch =
      carve_selection(args, selection_shape(args, shape.head_dim, shape.lut_elems()));
  const u32 n = args.ranges.n_middle();
  if (args.block_tokens > 1) {
    index.score(args.table, args.query, scratch.lut, scratch.scores, n);
    return choose_blocks(args, scratch);
  }
  if (shape.has_pairs()) {
    const u32 n_places = index.choose_by_pairs(args.table, args.query, args.k, scratch.lut,
                                               scratch.radix, scratch.places);
    return compose_slots(args, scratch.places, n_places);
  }
  index.score(args.table, args.query, scratch.lut, scratch.scores, n);
  return choose_best(args, scratch, rank_of(args, scratch, n));
}

PqReader::PqReader(const ReaderArgs& args) : config_(args.config) {
  index.init(pq_shape(args.config, args.keys, args.capacity_tokens), args.region);
}

u64 PqReader::region_bytes(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens) {
  return pq_layout(pq_shape(config, keys, capacity_tokens)).bytes;
}

void PqReader::truncate(u32 middle_end) {
  if (index.n_clustered() == 0) return;
  index.truncate(std::min(index.n_tokens(), middle_end - index.slot_begin()));
}

void PqReader::copy_from(const Reader& source) {
  index.copy_from(static_cast<const PqReader&>(source).index);
}

u32 PqReader::n_taken(u32 /*slot_end*/) const { return index.slot_begin() + index.n_tokens(); }

void PqReader::take_in(const kernels::CpuTable& table, const KeyPages& keys, u32 slot_end,
                       std::span<std::byte> scratch) {
  index.encode(table, keys, slot_end, scratch);
}

u32 PqReader::choose(const SelectionArgs& args, const KeyPages& /*keys*/) const {
  SelectionArgs in_blocks = args;
  in_blocks.block_tokens = config_.block_tokens;
  const u32 n = select_pq(in_blocks, index);
  const TokenRanges& s = args.ranges;
  if (config_.control != nullptr) {
    misplace(*config_.control, s, args.slots.subspan(s.n_sinks(), n - s.n_sinks() - s.n_local()));
  }
  return n;
}

}  // namespace tarn::method
