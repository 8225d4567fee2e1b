// runtime/plan/gpu_stream_shape.h
//
// What a GPU takes when KV lies over memory and disk. Groups pass through frames of the host's
// memory, which the GPU writes new rows into; what it attends to comes into its own memory, a chunk
// of one layer's slots at a time.
//
//   chunk     kernels::kGpuMergeSlots slots, of which attention's state needs no more than a vector
//             a head and row
//   kept      chunks that stay on the device: the first ones of a session's layers
//   gathered  slots that one row chose, a KV head behind the other
#pragma once

#include "kernels/attn/attn_gpu.h"
#include "platform/gpu/slabs.h"
#include "runtime/kv/group_pool.h"
#include "runtime/kv/kept_chunks.h"
#include "runtime/model/model_spec.h"

namespace tarn::plan {

inline constexpr u32 kGpuKeptMax = 256;  // chunks; 1M tokens

struct GpuStreamShape {
  u32 chunk_groups = 0;  // 0: all groups are in the GPU's memory
  u64 group_bytes = 0;   // from one group of a chunk to the next
  u32 gathered_pages = 0;
  u32 n_kept = 0;  // chunks of every layer that stay on the device
  // On the device, in this order.
  u64 states_bytes = 0;    // of attention over a part, a step's rows
  u64 staged_bytes = 0;    // a chunk
  u64 gathered_bytes = 0;  // of one row
  u64 tables_bytes = 0;    // addresses of groups in all, and how many slots each head chose
  u64 host_bytes = 0;      // on the host: what of that it writes, a row's query, what is kept
  kv::KeptShape kept{};
  bool is_on() const { return chunk_groups > 0; }
  // In the table: of a chunk's groups, of a head's gathered pages, of the kept chunks' groups.
  constexpr u64 kept_at() const { return u64{chunk_groups} + gathered_pages; }
  constexpr u64 n_addresses(u32 n_cache_layers) const {
    return kept_at() + u64{n_kept} * n_cache_layers * chunk_groups;
  }
  constexpr u64 device_bytes() const {
    return states_bytes + staged_bytes + gathered_bytes + tables_bytes;
  }
};

// n_chosen_max: slots that a head attends to by selection; 0: nothing selects.
inline GpuStreamShape gpu_stream_shape(const model::ModelSpec& spec, const kv::GroupShape& group,
                                       u32 step_rows, u32 n_chosen_max, u32 n_kept) {
  const auto piece = [](u64 bytes) { return align_up(bytes, kDevicePieceAlignment); };
  GpuStreamShape shape{
      .chunk_groups = kernels::kGpuMergeSlots / group.page_tokens,
      .group_bytes = group.group_bytes(),
      .gathered_pages = static_cast<u32>(ceil_div(n_chosen_max, group.page_tokens)),
      .n_kept = n_kept};
  shape.states_bytes =
      piece(u64{step_rows} * spec.n_heads * (u64{spec.head_dim} + 2) * sizeof(f32));
  shape.staged_bytes = piece(shape.chunk_groups * shape.group_bytes);
  shape.gathered_bytes = piece(u64{shape.gathered_pages} * group.payload_bytes());
  shape.tables_bytes =
      piece(shape.n_addresses(spec.n_cache_layers) * sizeof(u64) + spec.n_kv_heads * sizeof(u32));
  shape.kept = {n_kept, spec.n_cache_layers, shape.chunk_groups, group.page_tokens};
  shape.host_bytes = shape.tables_bytes + u64{spec.n_heads} * spec.head_dim * sizeof(f32) +
                     kv::KeptChunks::bookkeeping_bytes(shape.kept);
  return shape;
}

}  // namespace tarn::plan
