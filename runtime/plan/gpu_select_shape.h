// runtime/plan/gpu_select_shape.h
//
// What selection takes beside select_shape()'s when a GPU reads by it: of every session the index
// that it chooses by, scratch for one row's choice, room for what rows of one launch of attention
// chose, and the host's side of the ways in and out.
//
//   index    of a session: its heads', each as the host's (method::DeviceCodes), index_bytes
//            apart
//   scratch  tables and, where the choice is not by pairs of codes, scores and weights of a row's
//            heads; the places that they chose; what each row gathered; a step's state
//   window   groups of KV that come to the host at a time, for clustering
#pragma once

#include "kernels/attn/gather_slots_gpu.h"
#include "kernels/pq/pq_gpu.h"
#include "platform/gpu/slabs.h"
#include "runtime/kv/group_pool.h"
#include "runtime/method/select_layout.h"
#include "runtime/plan/gpu_shape.h"

namespace tarn::plan {

inline constexpr u64 kKeyWindowBytes = 4 * kMiB;  // a copy's start costs little of it on any link

struct GpuSelectShape {
  u32 n_rows = 0;          // that a launch of attention takes and that may select; 0: none ever do
  u64 table_bytes = 0;     // a session's index
  u32 gathered_pages = 0;  // of a row and head
  u32 window_groups = 0;   // 0: nothing is clustered
  u64 window_bytes = 0;
  // The scratch, in this order.
  u64 lut_bytes = 0;
  u64 scores_bytes = 0;
  u64 weights_bytes = 0;
  u64 places_bytes = 0;
  u64 gathered_bytes = 0;  // of all rows
  u64 state_bytes = 0;
  constexpr u64 scratch_bytes() const {
    return lut_bytes + scores_bytes + weights_bytes + places_bytes + gathered_bytes + state_bytes;
  }
};

struct GpuSelectInputs {
  u32 context_tokens = 0;
  u32 pages_max = 0;
  u32 sessions_max = 0;
  u32 step_rows = 0;
  kv::GroupShape group{};
};
inline GpuSelectShape gpu_select_shape(const model::ModelSpec& spec,
                                       const method::SelectShape& select,
                                       const GpuSelectInputs& in) {
  GpuSelectShape shape;
  if (select.n_heads == 0) return shape;
  const auto piece = [](u64 bytes) { return align_up(bytes, kDevicePieceAlignment); };
  shape.n_rows = std::min(in.sessions_max, kGpuAttnRowsMax);
  shape.gathered_pages = static_cast<u32>(ceil_div(select.n_chosen_max, in.group.page_tokens));
  shape.gathered_bytes =
      piece(u64{shape.n_rows} * shape.gathered_pages * spec.n_kv_heads * in.group.page_bytes());
  shape.state_bytes = piece(gpu_state_bytes(spec, in.step_rows, in.sessions_max));
  const method::DeviceCodes& codes = select.codes;
  if (!codes.exist()) return shape;
  shape.table_bytes = piece(select.n_heads * select.index_bytes);
  shape.window_groups = static_cast<u32>(
      std::min(std::max<u64>(kKeyWindowBytes / in.group.group_bytes(), 1), u64{in.pages_max}));
  shape.window_bytes = shape.window_groups * in.group.group_bytes();
  shape.lut_bytes = piece(u64{spec.n_heads} * codes.n_subspaces * codes.n_padded * sizeof(f32));
  shape.places_bytes = piece(u64{spec.n_kv_heads} * select.n_chosen_max * sizeof(u32));
  if (codes.counts_at != 0) return shape;
  shape.scores_bytes = piece(u64{spec.n_heads} * in.context_tokens * sizeof(f32));
  shape.weights_bytes = piece(u64{spec.n_kv_heads} * in.context_tokens * sizeof(f32));
  return shape;
}

}  // namespace tarn::plan
