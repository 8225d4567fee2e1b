// Chunks' KV in the device's memory (kv/parts/chunk_home.h). Slots are widened into a
// step's buffers, K is turned there as a step's K is, and both are stored as a step's rows are.
//
//   tables   of groups' addresses: GpuSizes::source_table() is the chunk's, the session has its own
//   memory   a step's buffers and state, which no step uses meanwhile
#pragma once

#include "runtime/exec/gpu/step.h"
#include "runtime/kv/parts/chunk_home.h"

namespace tarn::exec {

class GpuChunks final : public kv::ChunkHome {
 public:
  explicit GpuChunks(GpuStep* step) : step_(*step) {}
  Result<void> transplant(const Move& move) override;
  Result<void> compare(kv::Sequence& source, const kv::ChunkValues& values,
                       std::span<f32> deviation) override;

 private:
  void send_table(u32 table, kv::Sequence& sequence);
  void read(u32 cache_layer, u32 first_slot, u32 n, f32* k, f32* v);
  void transplant_rows(const Move& move);
  kernels::GpuPages source_pages(u32 cache_layer) const;

  GpuStep& step_;
};

}  // namespace tarn::exec
