// runtime/exec/gpu/args.h
//
// What a GPU backend is given: the plan's memory, the device's part and the host's.
#pragma once

#include <span>

#include "kernels/gpu_table.h"
#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "platform/gpu/device.h"
#include "runtime/method/part_source.h"
#include "runtime/model/model_spec.h"
#include "runtime/plan/gpu_select_shape.h"
#include "runtime/plan/gpu_stream_shape.h"

namespace tarn::exec {

// A GPU that hangs is lost so long after it stopped: that is the longest that it may take for one
// graph, or for kStreamMarkCalls calls where a step is none. A slow power mode, a hot board and a
// neighbour on the GPU make these ten times longer, and it still has much room.
inline constexpr u64 kGpuWaitNsMax = 30'000'000'000;

class GpuMemory;

// Of rows that choose on the device; without rows in the shape none ever does.
struct GpuSelectArgs {
  method::DeviceCodes codes{};  // none: a row reads the last slots of its middle
  plan::GpuSelectShape shape{};
  u32 n_chosen_max = 0;
  // On the device.
  u8* indexes = nullptr;  // [sessions_max] of shape.table_bytes
  f32* lut = nullptr;
  f32* scores = nullptr;
  f32* weights = nullptr;
  u32* places = nullptr;  // [n_kv_heads, n_chosen_max]
  u8* gathered = nullptr;
};

// Of KV over memory and disk; where the shape is off, KV is on the device.
struct GpuStreamArgs {
  plan::GpuStreamShape shape{};
  WorkerPool* workers = nullptr;      // of the host's part
  const std::byte* frames = nullptr;  // where they begin, as the host sees it
  u64 frames_on_device = 0;           // and the device
  // On the device.
  f32* states = nullptr;
  u8* staged = nullptr;
  u8* gathered = nullptr;
  std::byte* tables = nullptr;
  const GpuMemory* memory = nullptr;  // where chunks stay
  // On the host.
  std::span<std::byte> kept{};
  std::byte* host_tables = nullptr;
  f32* host_query = nullptr;  // [n_heads, head_dim]
};

struct GpuBackendArgs {
  Device* device = nullptr;
  const kernels::GpuTable* table = nullptr;
  Clock* clock = nullptr;
  const model::ModelSpec* spec = nullptr;
  kernels::KvType kv_type = kernels::KvType::f16;
  u32 page_tokens = 0;
  u64 page_bytes = 0;
  u32 rows_max = 0;  // a multiple of kernels::kGpuMatvecRowsMax
  u32 sessions_max = 0;
  u32 pages_max = 0;                    // of one cache layer of one session
  method::PartSource* parts = nullptr;  // of chosen slots, and of KV over memory and disk

  // On the device.
  kernels::GpuQuantized acts{};  // [rows_max, k_max]
  bool quantizes = false;        // some layer's product reads them
  std::byte* state = nullptr;    // a step's, by plan::gpu_state_shape()
  u32* counts = nullptr;         // [rows_max + 1]: 0, 1, 2, ..., where kernels read how many rows
  f32* embedded = nullptr;       // [rows_max, d_model]: where a step's rows begin
  u64* groups = nullptr;         // [tables, pages_max, n_cache_layers] addresses: of the sessions,
                                 // then of what rows gather
  f32* partial = nullptr;        // attention's, of 8 rows
  kernels::GpuLogitsSummary* summaries = nullptr;  // [logit_rows_max, chunks]

  // On the host, the other end of the copies.
  const f64* inv_freq = nullptr;       // [n_rot / 2]
  std::byte* host_state = nullptr;     // as state, and the counts behind it
  const f32* host_embedded = nullptr;  // as embedded; nullptr: embed() looks them up
  kernels::GpuLogitsSummary* host_summaries = nullptr;
  u64* host_groups = nullptr;  // zeros

  GpuSelectArgs select{};
  GpuStreamArgs stream{};
};

}  // namespace tarn::exec
