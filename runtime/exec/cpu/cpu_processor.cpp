#include "runtime/exec/cpu/cpu_processor.h"

namespace tarn::exec {

Result<void> CpuProcessor::reserve(const ProcessorArgs& args, const model::ModelDescription&, u32) {
  args_ = args;
  // One that has kernels could compute, and is let go.
  watched_ = WatchedDevice(args.gpu_kernels == nullptr ? args.device : nullptr);
  sampling_ = Carver(args.regions.logits);
  return watched_.bind_thread();
}

Result<model::Weights> CpuProcessor::load_weights(model::LoadArgs load) {
  load.tile_rows = args_.table->tile_rows;
  load.region = args_.regions.weights;
  return model::load_weights(load);
}

Result<StepSetup> CpuProcessor::open(const model::Weights& weights, Rows host_logits) {
  const model::ModelSpec& spec = *args_.spec;
  Carver activations(args_.regions.activations), attention(args_.regions.attention);
  const auto memory = CpuStepMemory::carve(activations, spec, args_.rows_max);
  kernels::rope_frequencies(spec.rope_base, spec.rope_scale, spec.n_rot, weights.rope_factors,
                            memory.rows.inv_freq.data());
  backend_.init({.table = args_.table,
                 .workers = args_.workers,
                 .clock = args_.clock,
                 .spec = args_.spec,
                 .kv_type = args_.kv_type,
                 .page_tokens = args_.page_tokens,
                 .rows_max = args_.rows_max,
                 .memory = memory,
                 .attention = AttentionMemory::carve(attention, spec, args_.attention),
                 .parts = args_.parts,
                 .watched = watched_});
  host_rows_.open(memory.step, args_.rows_max);
  return StepSetup{.backend = &backend_,
                   .step = memory.step,
                   .rows = memory.rows,
                   .embedded = {memory.step.x.data(), spec.d_model},
                   .logits = host_logits};
}

}  // namespace tarn::exec
