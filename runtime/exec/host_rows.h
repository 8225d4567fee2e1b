// How the host makes and sees rows of K and V between the ops of a step, for measurements
// (lab::Probe): where it addresses them, or in the buffer of a step's logits, which no op reads
// then, and from which they are copied.
//
//   thread   the engine's, within a step
//   errors   the device's: it is given up, and the step's own wait tells it
#pragma once

#include "runtime/step/rows.h"

namespace tarn::exec {

class HostRows {
 public:
  struct Made {
    step::Rows q{}, k{}, v{};       // for the ops, in the backend's space
    step::Rows host_k{}, host_v{};  // where the host makes them
  };
  // Returns how many rows of `width` f32 the host holds at a time.
  virtual u32 rows_max(u64 width) const = 0;
  // Returns where n rows of a layer lie.
  virtual Made made(u32 n) const = 0;
  // Gives the ops n rows that the host made.
  virtual void hand_over(const Made& rows, u32 n) = 0;
  // Returns what is called with a step's rows so that `watch` is shown them on the host.
  virtual step::KvWatch shown_to(const step::KvWatch& watch) = 0;

 protected:
  ~HostRows() = default;
};

}  // namespace tarn::exec
