// A GPU's rows as the host makes and sees them: copies in the buffer of a step's logits.
#pragma once

#include "platform/gpu/device.h"
#include "runtime/exec/backend.h"
#include "runtime/exec/host_rows.h"
#include "runtime/exec/step_memory.h"

namespace tarn::exec {

class GpuHostRows final : public HostRows {
 public:
  struct Args {
    Device* device = nullptr;
    Backend* backend = nullptr;
    StepMemory memory{};  // on the device
    u32 rows_max = 0;
    step::Rows buffer{};  // [n_buffer_rows, stride] of the host
    u32 n_buffer_rows = 0;
  };
  void open(const Args& args) { args_ = args; }
  u32 rows_max(u64 width) const override;
  Made made(u32 n) const override;
  void hand_over(const Made& rows, u32 n) override;
  step::KvWatch shown_to(const step::KvWatch& watch) override;

 private:
  static void show_copies(void* context, const step::KvRows& rows);
  // Copies n rows of all of q, k and v to the host; false: the device is lost.
  bool copy_out(step::Rows from, u32 n);

  Args args_{};
  step::KvWatch watch_{};
};

}  // namespace tarn::exec
