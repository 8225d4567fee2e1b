// Shared by the parts of a GPU backend within a step: its stream, and the step's state, which goes
// to the device in one copy. Kernels read there what changes from step to step, so a captured graph
// serves any.
//
//   modes    eager: ops enqueue; capture: they are recorded; replay: a graph does it all, and ops
//            enqueue nothing until the logits are fetched
//   thread   the engine's
#pragma once

#include <array>

#include "platform/gpu/stream_progress.h"
#include "runtime/exec/gpu/args.h"

namespace tarn::exec {

inline constexpr u32 kGpuActBlock = 32;  // elements of a row that are quantised together

// Makes any error the device's end: which results it spoilt cannot be told.
inline Result<void> or_lost(const Result<void>& done) {
  if (done) return {};
  Error error = done.error();
  error.status = Status::device_lost;
  return fail(error);
}

class GpuStep {
 public:
  enum class Mode : u8 { eager, capture, replay };

  Result<void> open(const GpuBackendArgs& args);
  void close();
  const GpuBackendArgs& args() const { return args_; }
  const GpuSizes& sizes() const { return args_.sizes; }
  const model::ModelSpec& spec() const { return *args_.spec; }
  const GpuRegions& regions() const { return args_.memory->regions(); }
  const GpuHostMemory& host() const { return args_.host; }
  Device& device() const { return *args_.device; }
  GpuStream* stream() const { return stream_; }
  StreamProgress& progress() { return progress_; }
  Mode mode() const { return mode_; }
  void set_mode(Mode mode) { mode_ = mode; }

  template <class Args>
  void enqueue(kernels::GpuLauncher<Args>* kernels::GpuTable::*kernel,
               const std::type_identity_t<Args>& args) {
    if (mode_ == Mode::replay) return;
    (args_.table->*kernel)(args, stream_);
    if (mode_ == Mode::eager) progress_.note();
  }
  template <class T>
  void send(T* to, const T* from, u64 n) {
    args_.device->copy_in(DevicePtr<T>(to).template as<std::byte>(),
                          std::as_bytes(std::span(from, n)), stream_);
    progress_.note();
  }
  // Decides where a step of so many rows has its state, and sends it.
  void place_state(u32 n_rows);
  void send_state() { send(regions().step.state.data(), host().state.data(), state_bytes_); }
  const GpuState& on_device() const { return device_state_; }
  const GpuState& on_host() const { return host_state_; }
  // Sends where groups [begin, end) of all layers of the table's sequence lie.
  void send_groups(u32 table, const kv::Sequence& sequence, u32 begin, u32 end);
  // Returns where kernels read that there are n rows; in a graph, as many as its step has.
  const u32* count(u32 n) const;
  // Returns the sessions' KV, from this row of the step on.
  kernels::GpuPages pages(u32 cache_layer, u32 row) const;
  // Rows of quantised activations, k elements each.
  kernels::GpuQuantized acts_from(u32 row, u64 k) const;

  // Until all is done. A step of a few rows waits for memory, one of many for arithmetic.
  Result<void> finish();

 private:
  GpuBackendArgs args_{};
  GpuStream* stream_ = nullptr;
  StreamProgress progress_{};
  Mode mode_ = Mode::eager;
  GpuState host_state_{}, device_state_{};  // of the step, or of the graph that is captured
  u64 state_bytes_ = 0;
  std::array<u64, 2> usual_wait_ns_{};  // wait_done()'s
};

// The arguments of a launch of attention: all slots of its rows, or with states a part of them.
struct GpuAttnPart {
  kernels::GpuPages pages{};
  step::Rows q{}, out{};
  const u32* visible = nullptr;
  u32 visible_stride = 0;
  kernels::GpuQuantized quantized{};
  f32* states = nullptr;
  u32 n_rows = 0;
  u32 span_begin = 0, n_spans = 0;
  bool one_sequence = false;  // the rows are of one
};
void attend_part(GpuStep& step, const GpuAttnPart& part);

}  // namespace tarn::exec
