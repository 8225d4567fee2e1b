// The backend of a GPU: its ops (ops.h), and attention over KV in the device's memory (here) or in
// the host's (parts.h). begin_step() sends what kernels read of the step; nothing is waited for
// before finish(), but for the host's part in a layer.
//
//   graphs    of decode steps: graphs.h. Rows that choose on the device: chooser.h
//   tables    where a session's groups lie, kept on both sides; only what changed is looked at and
//             sent
//   disk      rows of an embedding table that stays in the file are read by the host before the
//             step and sent with its state
//   memory    the plan's: the device's part and the host's part of it are lent, the backend owns an
//             event alone
//   thread    the engine's
//   errors    finish() tells the device's first one. A GPU that gets no further for kGpuWaitNsMax
//             is taken for lost (platform/gpu/stream_progress.h), however slow one that does is not
#pragma once

#include "runtime/exec/gpu/chooser.h"
#include "runtime/exec/gpu/chunks.h"
#include "runtime/exec/gpu/graphs.h"
#include "runtime/exec/gpu/indexes.h"
#include "runtime/exec/gpu/ops.h"
#include "runtime/exec/gpu/parts.h"

namespace tarn::exec {

class GpuBackend final : public GpuOps {
 public:
  GpuBackend() = default;
  GpuBackend(const GpuBackend&) = delete;
  GpuBackend& operator=(const GpuBackend&) = delete;
  ~GpuBackend() override { close(); }

  Result<void> open(const GpuBackendArgs& args);
  void close();

  void begin_step(const step::Batch& batch) override;
  void note_kept_groups(const step::Batch& batch) const override;
  void kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) override;
  void attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) override;

  GpuGraphs& graphs() { return graphs_; }
  const GpuParts& parts() const { return parts_; }
  GpuIndexes& indexes() { return indexes_; }
  GpuChunks& chunks() { return chunks_; }

 private:
  void write_state(const step::Batch& batch);
  void send_groups(const step::Batch& batch, const step::Run& run);
  template <class Fn>
  void each_choosing(const step::Batch& batch, Fn&& fn) const;
  void count_kv(const step::Batch& batch);

  GpuChooser chooser_{&step_};
  GpuGraphs graphs_{&step_};
  GpuParts parts_{&step_};
  GpuIndexes indexes_{&step_};
  GpuChunks chunks_{&step_};
};

}  // namespace tarn::exec
