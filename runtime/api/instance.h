// The object behind a handle of the C API: an engine, the threads that serve it, and the host's
// options, in one reservation.
#pragma once

#include <array>

#include "runtime/api/tarn.h"
#include "runtime/engine/engine.h"
#include "runtime/service/service.h"

namespace tarn::api {

// Parts that replace the system's own, in tests.
struct Lent {
  Reserve* reserve = nullptr;
  Device* device = nullptr;
  const kernels::GpuTable* gpu_kernels = nullptr;  // of `device`; nullptr: it is watched alone
};

class Instance {
 public:
  // A session as a host sees it: an index with its way back.
  struct SessionHandle {
    Instance* instance = nullptr;
    engine::SessionIdx idx = 0;
  };

  // A new instance in a reservation of its own; close() gives everything back. A dead one is given
  // up as it is, because its parked threads stand in its memory.
  static Result<Instance*> open(const tarn_options& options, const Lent& lent = {});
  static void close(Instance* instance);
  // Plans what open() would reserve.
  static Result<engine::PlanReport> plan(const tarn_options& options, const Lent& lent = {});

  // The handle of a session that begins; kNoSession: NULL.
  tarn_session* begin_session(engine::SessionIdx idx) {
    service.begin_session(idx);
    return handle_of(idx);
  }
  tarn_session* handle_of(engine::SessionIdx idx) {
    return idx == service::kNoSession ? nullptr : reinterpret_cast<tarn_session*>(&sessions[idx]);
  }

  u64 now_ns() { return clock_.now_ns(); }  // as the engine sees it

  engine::Engine engine{};
  service::Service service{};
  std::array<SessionHandle, engine::kSessionsMax> sessions{};

 private:
  Instance() = default;
  static void close_engine(void* instance);
  ~Instance() = default;
  // An instance whose thread runs and whose engine is not open. Reading a file happens on that
  // thread, for a plan as for an engine: an assertion there must not stop the host's.
  static Result<Instance*> start(const tarn_options& options, const Lent& lent,
                                 engine::OpenArgs* open);

  SystemReserve system_reserve_{};
  SystemClock clock_{};
  Reserve* reserve_ = nullptr;  // of this object; nullptr: the system's
  engine::SystemGpu gpu_{};
  std::span<std::byte> memory_{};  // where this object stands
  tarn_options options_{};
};

}  // namespace tarn::api
