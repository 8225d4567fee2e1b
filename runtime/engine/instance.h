// What a host holds: an engine, the thread that drives it, and the host's hooks, in one
// reservation. The C API (runtime/api) is a thin border around it.
#pragma once

#include <array>
#include <atomic>
#include <span>

#include "runtime/engine/engine.h"
#include "runtime/engine/engine_thread.h"

namespace tarn::engine {

// The host's functions; each may be nullptr. Their contexts are handed back as they came.
struct HostHooks {
  void (*on_log)(void* context, i32 level, const char* text) = nullptr;
  void* log_context = nullptr;
  LogLevel log_least = LogLevel::info;
  void (*fatal)(void* context, const char* condition, const char* file, u32 line) = nullptr;
  void* fatal_context = nullptr;
  i32 (*progress)(void* context, u64 done, u64 total) = nullptr;  // non-zero gives up
  void* progress_context = nullptr;
};

struct InstanceArgs {
  const char* model_path = nullptr;
  const char* config_toml = nullptr;  // nullptr: the defaults
  u64 budget_bytes = 0;               // 0: as in the configuration
  HostHooks hooks{};
  std::span<const u32> cpus{};
  Reserve* reserve = nullptr;  // nullptr: the system's
  // nullptr: the system's, if the configuration and this build want one.
  Device* device = nullptr;
  const kernels::GpuTable* gpu_kernels = nullptr;  // of `device`; nullptr: it is watched alone
};

class Instance {
 public:
  // A session as a host sees it: an index with its way back.
  struct SessionHandle {
    Instance* instance = nullptr;
    SessionIdx idx = 0;
    std::atomic<bool> reading{false};  // a generation was begun and its end was not read yet
  };

  // A new instance in a reservation of its own; close() gives everything back. A dead one is given
  // up as it is, because its parked threads stand in its memory.
  static Result<Instance*> open(const InstanceArgs& args);
  static void close(Instance* instance);
  // What open() would reserve.
  static Result<PlanReport> plan(const InstanceArgs& args);

  Engine engine{};
  EngineThread thread{};
  std::array<SessionHandle, kSessionsMax> sessions{};

 private:
  Instance() = default;
  static void close_engine(void* instance);
  ~Instance() = default;
  // An instance whose thread runs and whose engine is not open. Reading a file happens on that
  // thread, for a plan as for an engine: an assertion there must not stop the host's.
  static Result<Instance*> start(const InstanceArgs& args, const Config& config, OpenArgs* open);
  OpenArgs open_args(const InstanceArgs& args, const Config& config);

  SystemReserve system_reserve_{};
  SystemClock clock_{};
  Reserve* reserve_ = nullptr;
  SystemGpu gpu_{};
  std::span<std::byte> memory_{};  // where this object stands
  HostHooks hooks_{};
};

}  // namespace tarn::engine
