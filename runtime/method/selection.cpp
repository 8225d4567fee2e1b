#include "runtime/method/selection.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::method {
namespace {

void append_range(u32 begin, u32 end, const SelectionArgs& args, u32& n_out) {
  TARN_ASSERT(n_out + (end - begin) <= args.slots.size());
  for (u32 slot = begin; slot < end; ++slot) args.slots[n_out++] = slot;
}

}  // namespace

void KeyPages::load(const kernels::CpuTable& table, u32 slot_begin, u32 n_slots, f32* out) const {
  const u64 vector_bytes = kernels::kv_vector_bytes(type, head_dim);
  const u64 slot_bytes = stride_bytes != 0 ? stride_bytes : 2 * vector_bytes;
  for (u32 done = 0; done < n_slots;) {
    const u32 slot = slot_begin + done;
    const u32 n = std::min(n_slots - done, page_tokens - slot % page_tokens);
    const u8* first = pages[slot / page_tokens] + slot % page_tokens * slot_bytes;
    table.pq_load({.type = kernels::kv_tensor_type(type),
                   .rows = first,
                   .stride_bytes = slot_bytes,
                   .x = out + u64{done} * head_dim,
                   .n_rows = n,
                   .dims = head_dim});
    done += n;
  }
}

SelectionScratch SelectionScratch::carve(Carver& carver, const SelectionShape& shape) {
  constexpr u64 kRankBytes = std::max(kernels::kTopKScratchBytes, kernels::kPqPairScratchBytes);
  // A middle of a few tokens may be two pages of Quest's.
  const u64 n = std::max(shape.middle_tokens_max, 64u), n_heads = shape.n_group_heads;
  return {.radix = carver.take<std::byte>("", kRankBytes).data(),
          .lut = carver.take<f32>("", n_heads * shape.lut_elems).data(),
          .scores = carver.take<f32>("", n_heads * n).data(),
          .weights = carver.take<f32>("", n).data(),
          .places = carver.take<u32>("", n).data()};
}

u64 selection_scratch_bytes(const SelectionShape& shape) {
  Carver counted;
  SelectionScratch::carve(counted, shape);
  return *counted.n_bytes().get();
}

SelectionScratch carve_selection(const SelectionArgs& args, u32 lut_elems) {
  Carver carver(args.scratch);
  return SelectionScratch::carve(carver, {args.query.n_heads, lut_elems, args.ranges.n_middle()});
}

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

}  // namespace tarn::method
