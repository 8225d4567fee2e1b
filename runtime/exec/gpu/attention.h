// Attention of a GPU's steps, and what it readies of each: over KV in the device's memory
// (resident.h), or over KV that comes there in stripes (parts.h).
#pragma once

#include "runtime/exec/forward.h"
#include "runtime/exec/gpu/step.h"

namespace tarn::exec {

class GpuAttention {
 public:
  virtual Result<void> open() = 0;
  virtual void close() = 0;
  // Writes its part of the step's state, which is sent next, and sends where the groups lie.
  virtual void begin_step(const step::Batch& batch) = 0;
  // Returns whether a graph does the step, and is on its way.
  virtual bool launch(const step::Batch& batch) = 0;
  // Enqueues what comes before the step's ops.
  virtual void begin_ops(const step::Batch& batch) = 0;
  // The inputs and outputs of one attention.
  struct Attended {
    const step::Batch& batch;
    u32 cache_layer;
    step::Rows q, out;
    bool leaves_acts;
  };
  virtual void attend(const Attended& a) = 0;
  // Returns how many bytes of KV were read since the last call, but for slots that the host chose.
  virtual u64 take_kv_bytes() = 0;
  // Counts the groups, from the first on, that stay on the device for a run that reads everything.
  virtual u32 n_kept_groups(const step::Run& run) const = 0;
  // Counts the stripes that attention found on the device.
  virtual u64 n_stripes_kept() const = 0;
  // Captures the graphs of all steps that are one; launches each once.
  virtual Result<void> capture(const StepCapture& capture) = 0;
  virtual Result<void> warm() = 0;

 protected:
  ~GpuAttention() = default;
};

}  // namespace tarn::exec
