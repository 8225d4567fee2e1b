// Rows of activations, and K and V of a step as a watcher sees them.
//
//   rows     [n, stride] f32, stride in elements, in the backend's own space
//   thread   the engine's
#pragma once

#include "platform/base/types.h"

namespace tarn::step {

struct Rows {
  f32* data = nullptr;
  u64 stride = 0;
};
inline Rows from_row(Rows rows, u32 row) { return {rows.data + row * rows.stride, rows.stride}; }

// K before RoPE and V of consecutive slots of one cache layer, [n, n_kv_heads * head_dim] each. Of
// rows that a step computes, also their queries before RoPE.
struct KvRows {
  u32 session = 0;  // of a step's rows, as in Run
  u32 cache_layer = 0;
  u32 first_slot = 0;
  u32 n = 0;
  Rows k{}, v{}, q{};
};
using KvRowsFn = void (*)(void* context, const KvRows& rows);
struct KvWatch {
  KvRowsFn rows = nullptr;
  void* context = nullptr;
};

}  // namespace tarn::step
