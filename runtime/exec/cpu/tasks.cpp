#include "runtime/exec/cpu/tasks.h"

namespace tarn::exec {

void CpuTasks::begin_step(step::StepHost* host) {
  host_ = host;
  abandoned_.store(false, std::memory_order_relaxed);
}

WorkerPool::Waiting CpuTasks::looking() {
  return {[](void* self) { (void)static_cast<CpuTasks*>(self)->skips(0); }, this};
}

bool CpuTasks::skips(u32 worker_idx) {
  return worker_idx == 0 ? !goes_on(step::Pause::within_op) : is_abandoned();
}

bool CpuTasks::goes_on(step::Pause pause) {
  if (host_ != nullptr && !is_abandoned() && !host_->tick(pause)) {
    abandoned_.store(true, std::memory_order_relaxed);
  }
  return !is_abandoned();
}

}  // namespace tarn::exec
