#include "runtime/reuse/blend/transplant.h"

#include <cstring>

#include "kernels/attn/attn.h"
#include "runtime/kv/parts/chunk_home.h"

namespace tarn::reuse {
namespace {

const u8* slot_of(kernels::KvType type, u32 head_dim, const u8* page, u32 slot) {
  return page + u64{slot} * 2 * kernels::kv_vector_bytes(type, head_dim);
}

}  // namespace

void transplant_kv(const KvTurn& turn, const u8* source_page, u32 from, std::span<u8* const> slots,
                   std::span<f32> scratch) {
  const u64 vector_bytes = kernels::kv_vector_bytes(turn.type, turn.head_dim);
  const auto source = [&](u64 i) {
    return slot_of(turn.type, turn.head_dim, source_page, from + static_cast<u32>(i));
  };
  const auto keys = [&](u64 i) { return scratch.data() + i * turn.head_dim; };
  for (u64 i = 0; i < slots.size(); ++i) {
    kernels::dequantize_row(kernels::kv_tensor_type(turn.type), source(i), turn.head_dim, keys(i));
  }
  turn.table->rope({.x = scratch.data(),  // one row, of as many heads as there are slots
                    .x_stride = scratch.size(),
                    .cos = turn.cos,
                    .sin = turn.sin,
                    .n_rows = 1,
                    .n_heads = static_cast<u32>(slots.size()),
                    .head_dim = turn.head_dim,
                    .n_rot = turn.n_rot,
                    .pairs = turn.pairs});
  for (u64 i = 0; i < slots.size(); ++i) {
    if (slots[i] == nullptr) continue;
    turn.table->kv_store({.type = turn.type,
                          .k = keys(i),
                          .v = keys(i),
                          .slot = slots[i],
                          .head_dim = turn.head_dim});
    std::memcpy(slots[i] + vector_bytes, source(i) + vector_bytes, vector_bytes);
  }
}

f64 value_deviation(kernels::KvType type, u32 head_dim, const f32* v, const u8* source_page,
                    u32 slot, std::span<f32> scratch) {
  const u8* stored = slot_of(type, head_dim, source_page, slot);
  kernels::dequantize_row(kernels::kv_tensor_type(type),
                          stored + kernels::kv_vector_bytes(type, head_dim), head_dim,
                          scratch.data());
  return kv::squared_distance(v, scratch.data(), head_dim);
}

}  // namespace tarn::reuse
