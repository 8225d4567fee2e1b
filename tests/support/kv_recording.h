// Records the K and V of a session by (layer, slot): `take` is for watch_kv(), `give` for fill_kv()
// of another session.
#pragma once

#include <algorithm>
#include <vector>

#include "runtime/engine/engine.h"

namespace tarn::test {

struct KvRecording {
  u32 n_slots, d;  // d is the size of a row's K or V, of all heads
  u64 n_rows = 0;  // shown, over all layers
  std::vector<f32> k, v;

  KvRecording(const engine::Engine& engine, u32 n)
      : n_slots(n), d(engine.spec().n_kv_heads * engine.spec().head_dim) {
    k.resize(u64{engine.spec().n_cache_layers} * n * d);
    v.resize(k.size());
  }
  u64 at(const step::KvRows& rows, u32 i) const {
    return (u64{rows.cache_layer} * n_slots + rows.first_slot + i) * d;
  }
  static void take(void* context, const step::KvRows& rows) {
    auto& self = *static_cast<KvRecording*>(context);
    self.n_rows += rows.n;
    for (u32 i = 0; i < rows.n; ++i) {
      std::copy_n(rows.k.data + i * rows.k.stride, self.d, &self.k[self.at(rows, i)]);
      std::copy_n(rows.v.data + i * rows.v.stride, self.d, &self.v[self.at(rows, i)]);
    }
  }
  static void give(void* context, const step::KvRows& rows) {
    const auto& self = *static_cast<const KvRecording*>(context);
    for (u32 i = 0; i < rows.n; ++i) {
      std::copy_n(&self.k[self.at(rows, i)], self.d, rows.k.data + i * rows.k.stride);
      std::copy_n(&self.v[self.at(rows, i)], self.d, rows.v.data + i * rows.v.stride);
    }
  }
};

}  // namespace tarn::test
