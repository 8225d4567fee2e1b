// KV of chunks that the host addresses: pages in memory, or that come from the disk and are pinned
// meanwhile. Chosen tokens' KV is left out.
//
//   memory   lent; the blends of an engine take turns with it
//   errors   the disk's
//   thread   the engine's, with its workers
#pragma once

#include "platform/cpu/worker_pool.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/kv/parts/chunk_home.h"
#include "runtime/model/model_spec.h"
#include "runtime/reuse/blend/transplant.h"

namespace tarn::reuse {

struct HostChunksMemory {
  std::span<f32> scratch;  // [n_workers, page_tokens * head_dim]
  std::span<f64> inv_freq;
  std::span<f32> cos, sin;  // [n_rot / 2]
  static HostChunksMemory carve(Carver& carver, const model::ModelSpec& spec, u32 page_tokens,
                                u32 n_workers);
};

class HostChunks final : public kv::ChunkHome {
 public:
  struct Args {
    const model::ModelSpec* spec = nullptr;
    u32 page_tokens = 0;
    kv::KvCache* kv = nullptr;
    const kernels::CpuTable* table = nullptr;
    WorkerPool* workers = nullptr;
    kernels::KvType kv_type{};
    const f32* rope_factors = nullptr;
    HostChunksMemory memory{};
  };
  void init(const Args& args);
  void close() { args_ = {}; }

  Result<void> transplant(const Move& move) override;
  Result<void> compare(kv::Sequence& source, const kv::ChunkValues& values,
                       std::span<f32> deviation) override;

 private:
  struct Page {
    u32 layer, idx, kv_head;
  };
  Result<void> transplant_layer(const Move& move, u32 layer);
  void transplant_page(const Move& move, Page page, u32 worker_idx);

  Args args_{};
};

}  // namespace tarn::reuse
