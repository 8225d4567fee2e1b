// A processor of an engine's steps, and the memory that it computes in: a CPU in the arena, or a
// GPU in slabs of its own. home.h chooses one at open. The calls stand here in the order in which
// open() makes them.
//
//   thread   the engine's
//   errors   what fails leaves the rest to close()
//   memory   everything that open() lends is borrowed until close()
#pragma once

#include <span>

#include "kernels/cpu_table.h"
#include "kernels/gpu_table.h"
#include "platform/clock/clock.h"
#include "platform/cpu/worker_pool.h"
#include "platform/gpu/memory_probe.h"
#include "platform/gpu/slabs.h"
#include "platform/log/log.h"
#include "runtime/exec/cpu/attention_memory.h"
#include "runtime/exec/forward.h"
#include "runtime/exec/gpu/regions.h"
#include "runtime/exec/host_rows.h"
#include "runtime/exec/step_memory.h"
#include "runtime/kv/numerics.h"
#include "runtime/kv/parts/part_source.h"

namespace tarn::exec {

// Regions of the arena. One is empty where the plan has no such thing, or has it in a GPU.
struct HostRegions {
  std::span<std::byte> weights, activations, attention, logits;
  std::span<std::byte> mirror;    // the host's end of a GPU's copies
  std::span<std::byte> groups;    // of KV, or its frames
  std::span<std::byte> gathered;  // what is chosen of KV, and selection's scratch
};

struct ProcessorArgs {
  Device* device = nullptr;
  const kernels::GpuTable* gpu_kernels = nullptr;
  const kernels::CpuTable* table = nullptr;
  WorkerPool* workers = nullptr;
  Clock* clock = nullptr;
  Log log{};
  const model::ModelSpec* spec = nullptr;
  kernels::KvType kv_type = kernels::KvType::f16;
  kv::PartSource* parts = nullptr;
  u32 page_tokens = 0;
  u32 rows_max = 0;
  AttentionSizes attention{};  // a CPU's
  GpuSizes gpu{};
  const SlabCutter* slabs = nullptr;         // as the plan counted them
  u64 host_bytes = 0, driver_bytes_max = 0;  // likewise
  u32 groups_max = 0;
  std::span<std::byte> arena{};  // all of the host's memory, with nothing in it yet
  HostRegions regions{};
};

struct ArenaUse {
  Reserve* reserve = nullptr;  // the system, or the driver where it registers no other memory
  bool for_device = false;     // ReserveArgs'
};

// Where a step's rows lie, and the backend that computes them.
struct StepSetup {
  Backend* backend = nullptr;
  StepMemory step{};   // in the backend's space
  StepRows rows{};     // the host's
  Rows embedded{};     // [rows_max, d_model] of the host
  Rows logits{};       // [logit_rows_max, n_vocab], the backend's
  Rows host_values{};  // ForwardArgs'
};

// A prompt and a token more, which leave nothing.
class FirstSteps {
 public:
  virtual Result<void> run() = 0;

 protected:
  ~FirstSteps() = default;
};

struct ProcessorFacts {
  bool on_gpu = false;
  const char* device = "cpu";
  const char* gpu_name = "";
  u32 numerics_id = 0;   // reuse::KvIdentity's
  u64 driver_bytes = 0;  // what a GPU's driver took beside the plan's slabs
  MemoryProbe probe{};
  u64 n_stripes_kept = 0;  // that attention found on the device
};

class Processor {
 public:
  // Returns whose memory the arena is to be: the system's, or that of the device's driver.
  virtual ArenaUse arena_use(Reserve* system, Device* device, const DeviceFacts& planned) = 0;
  // Reserves its own memory, of it n_groups of KV, and readies what it reaches of the host's.
  virtual Result<void> reserve(const ProcessorArgs& args, const model::ModelDescription& model,
                               u32 n_groups) = 0;
  // Frames of KV in the host's memory, and what is gathered of them: it reaches them from now on.
  virtual Result<void> reach_frames(std::span<std::byte> frames, std::span<std::byte> gathered) = 0;
  virtual Result<model::Weights> load_weights(model::LoadArgs load) = 0;
  // Returns the host's memory for what is sampled from.
  virtual Carver& sampling() = 0;
  virtual Result<StepSetup> open(const model::Weights& weights, Rows host_logits) = 0;
  // Whatever a first step would load or capture is there from now on.
  virtual Result<void> warm_up(const StepCapture& capture, FirstSteps& steps) = 0;
  virtual ProcessorFacts facts() const = 0;
  // Returns how a measurement makes and sees rows between the ops.
  virtual HostRows& host_rows() = 0;
  // Gives the engine up, which is lost with its device.
  virtual void give_up() = 0;
  // Called by any thread, when no step runs.
  virtual void close() = 0;

 protected:
  ~Processor() = default;
};

}  // namespace tarn::exec
