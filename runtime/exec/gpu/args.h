// The parts that a GPU backend is given: the plan's memory, the device's part and the host's.
#pragma once

#include "kernels/gpu_table.h"
#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "platform/gpu/device.h"
#include "runtime/exec/gpu/memory.h"
#include "runtime/kv/parts/part_source.h"
#include "runtime/model/model_spec.h"

namespace tarn::exec {

// A GPU that hangs is lost so long after it stopped: that is the longest that it may take for one
// graph, or for kStreamMarkCalls calls where a step is none. A slow power mode, a hot board and a
// neighbour on the GPU make these ten times longer, and it still has much room.
inline constexpr u64 kGpuWaitNsMax = 30'000'000'000;

struct GpuBackendArgs {
  Device* device = nullptr;
  const kernels::GpuTable* table = nullptr;
  Clock* clock = nullptr;
  const model::ModelSpec* spec = nullptr;
  kernels::KvType kv_type = kernels::KvType::f16;
  GpuSizes sizes{};
  kv::PartSource* parts = nullptr;  // of chosen slots, and of KV over memory and disk
  WorkerPool* workers = nullptr;    // of the host's part, where it chooses
  bool quantizes = false;           // some layer's product reads quantised rows
  const GpuMemory* memory = nullptr;
  GpuHostMemory host{};
  // The begin of the frames, for KV over memory and disk, as the host sees it and the device.
  const std::byte* frames = nullptr;
  u64 frames_on_device = 0;

  kernels::GpuQuantized acts() const {  // [rows_max, k_max]
    const StepMemory& step = memory->regions().step.step;
    return {.q = step.act_q.data(),
            .side = reinterpret_cast<kernels::U32x2*>(step.act_sums.data())};
  }
};

}  // namespace tarn::exec
