// KV of a chunk that was computed elsewhere, put where the chunk stands now: K is turned by the
// distance, V is copied. A score depends on the distance of its two positions alone, so K is what
// the chunk's tokens would have at their new positions (Su et al. 2021, arXiv:2104.09864, section
// 3.4.2), up to the rounding of its type.
//
//   frequencies   the model's effective ones, as its forward pass has them; dims >= n_rot stay
//   pages         as in kernels/attn/attn.h, of one KV head
//   thread        any; pages are independent tasks
#pragma once

#include <span>

#include "kernels/cpu_table.h"

namespace tarn::reuse {

struct KvTurn {
  const kernels::CpuTable* table = nullptr;
  kernels::KvType type{};
  u32 head_dim = 0;
  u32 n_rot = 0;
  kernels::RopePairs pairs{};
  const f32* cos = nullptr;  // [n_rot / 2] of the distance
  const f32* sin = nullptr;
};

// Slots [from, from + slots.size()) of a source's page; slots[i] is where the i-th one's K and V
// go, nullptr: nowhere. `scratch` is f32 [slots.size(), head_dim].
void transplant_kv(const KvTurn& turn, const u8* source_page, u32 from, std::span<u8* const> slots,
                   std::span<f32> scratch);

// Returns the sum over the dims of one head of (v - the V of this slot)^2, in f64.
f64 value_deviation(kernels::KvType type, u32 head_dim, const f32* v, const u8* source_page,
                    u32 slot, std::span<f32> scratch);

}  // namespace tarn::reuse
