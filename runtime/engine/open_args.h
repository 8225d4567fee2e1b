// The arguments of opening an engine, the system's GPU for it, and the plan that opening would
// reserve.
#pragma once

#include <span>

#include "kernels/gpu_table.h"
#include "platform/base/assert.h"
#include "platform/clock/clock.h"
#include "platform/gpu/device.h"
#include "platform/io/io_backend.h"
#include "platform/log/log.h"
#include "platform/mem/reserve.h"
#include "runtime/config/config.h"
#include "runtime/plan/plan.h"

namespace tarn::engine {

struct OpenArgs {
  const char* model_path = "";
  Config config{};
  const char* chat_template = "";  // a name or a text (find_templates()); "": the model's own
  Reserve* reserve = nullptr;      // borrowed until close()
  Clock* clock = nullptr;          // borrowed until close()
  // Borrowed until close(). Its errors are the engine's: no token and no KV of a step is accepted
  // before check() has said that the step's work was done.
  Device* device = nullptr;
  // Its kernels: the model runs there unless the configuration says "cpu", or "auto" and the
  // kernels do not compute this model; the device is let go then. nullptr: on the CPU.
  const kernels::GpuTable* gpu_kernels = nullptr;
  // plan_model() plans for this device of another box and looks at no store; nullptr: this box.
  const DeviceFacts* target = nullptr;
  IoBackend* store_io = nullptr;  // of the store, borrowed until close(); nullptr: its own
  Log log{};
  const FatalSink* sink = nullptr;  // for the worker threads
  std::span<const u32> cpus{};      // that workers may use; empty: those of the process
  bool (*on_progress)(void* context, u64 done_bytes, u64 total_bytes) = nullptr;
  void* progress_context = nullptr;
};

// Returns how a configuration wants its GPU opened.
DeviceOpenArgs device_open_args(const Config& config);

// The system's GPU, opened for an engine that may use one; outlives it.
class SystemGpu {
 public:
  SystemGpu() = default;
  SystemGpu(const SystemGpu&) = delete;
  SystemGpu& operator=(const SystemGpu&) = delete;
  ~SystemGpu() { close(); }

  // Fills in `device` and `gpu_kernels` where the configuration wants a GPU, this build has kernels
  // for one, and none was lent. Where "auto" meets one that does not open, the configuration
  // becomes "cpu", and the log says why.
  Result<void> open(OpenArgs* args);
  void close();

 private:
  Device* device_ = nullptr;  // in memory_
  SystemDeviceMemory memory_{};
};

// The plan that open() would reserve, on the system's GPU where none was lent. Reads the file's
// directory only, so the head of a file suffices, and takes no device.
struct PlanReport {
  plan::Plan plan{};
  Error why_not{};        // where the plan does not fit: what to lower
  u64 missing_bytes = 0;  // of the tensors' data, which open() needs
  bool on_gpu = false;
};
Result<PlanReport> plan_model(OpenArgs args);

}  // namespace tarn::engine
