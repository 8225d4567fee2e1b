#include "runtime/exec/gpu/gpu_backend.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::exec {

using Mode = GpuStep::Mode;

Result<void> GpuBackend::open(const GpuBackendArgs& args) {
  TARN_CHECK(step_.open(args));
  TARN_CHECK(attention_->open());
  return finish();
}

void GpuBackend::close() {
  attention_->close();
  attention_ = &resident_;
  step_.close();
}

void GpuBackend::begin_step(const step::Batch& batch) {
  products_.forget_acts();
  if (step_.mode() != Mode::capture) {
    step_.set_mode(Mode::eager);
    step_.place_state(batch.n_rows);
    write_state(batch);
    attention_->begin_step(batch);
    step_.send_state();
    if (!step_.host().embedded.empty()) {
      step_.send(step_.regions().step.step.x.data(), step_.host().embedded.data(),
                 u64{batch.n_rows} * step_.spec().d_model);
    }
    if (attention_->launch(batch)) step_.set_mode(Mode::replay);
  }
  attention_->begin_ops(batch);
}

void GpuBackend::note_kept_groups(const step::Batch& batch) const {
  for (step::Run& run : batch.runs) {
    if (!run.selects) run.offloaded_end = attention_->n_kept_groups(run);
  }
}

void GpuBackend::write_state(const step::Batch& batch) {
  const GpuState& state = step_.on_host();
  const u32 n = batch.n_rows;
  state.n_rows[0] = n;
  state.n_rows[1] = batch.takes_best ? n : 0;
  std::copy_n(batch.tokens, n, state.tokens.data());
  std::copy_n(batch.slots, n, state.slots.data());
  std::copy_n(batch.visible, n, state.visible.data());
  std::ranges::copy(batch.logit_rows, state.logit_rows.data());
  for (const step::Run& run : batch.runs) {
    std::fill_n(state.sessions.data() + run.row_begin, run.n_rows, step_.sizes().table_of(run));
  }
  kernels::rope_table({.positions = batch.positions,
                       .n_rows = n,
                       .n_rot = step_.spec().n_rot,
                       .inv_freq = step_.host().rows.inv_freq.data(),
                       .cos = state.cos.data(),
                       .sin = state.sin.data()});
}

void GpuBackend::embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) {
  step_.enqueue(&kernels::GpuTable::embed, {.type = table.type,
                                            .weights = table.tiled,
                                            .k = table.k,
                                            .tokens = step_.on_device().tokens.data(),
                                            .out = out.data,
                                            .out_stride = out.stride,
                                            .n_rows = step_.count(batch.n_rows),
                                            .rows_max = batch.n_rows});
  products_.count(batch.n_rows * kernels::row_bytes(table.type, table.k));
}

void GpuBackend::rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) {
  step_.enqueue(&kernels::GpuTable::rms_norm, {.x = x.data,
                                               .x_stride = x.stride,
                                               .weight = weight,
                                               .out = out.data,
                                               .out_stride = out.stride,
                                               .quantized = products_.acts_for(out, d),
                                               .n_rows = step_.count(n),
                                               .rows_max = n,
                                               .n_heads = 1,
                                               .d = d,
                                               .eps = eps});
}

void GpuBackend::rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) {
  step_.enqueue(&kernels::GpuTable::rms_norm, {.x = x.data,
                                               .x_stride = x.stride,
                                               .weight = weight,
                                               .out = x.data,
                                               .out_stride = x.stride,
                                               .n_rows = step_.count(n),
                                               .rows_max = n,
                                               .n_heads = n_heads,
                                               .d = step_.spec().head_dim,
                                               .eps = eps});
}

void GpuBackend::project(Rows x, u32 n, std::span<const Projection> projections) {
  products_.multiply(x, n, projections, kernels::Store::set);
}

void GpuBackend::project_add(const ResidualProjection& p, u32 n) {
  const Projection product[] = {{p.weight, nullptr, p.x}};
  products_.multiply(p.in, n, product, kernels::Store::add);
}

void GpuBackend::rope(Rows q, Rows k, u32 n) {
  const model::ModelSpec& spec = step_.spec();
  step_.enqueue(
      &kernels::GpuTable::rope,
      {.q = {.x = q.data, .stride = q.stride, .n_heads = spec.n_heads},
       .k = {.x = k.data, .stride = k.stride, .n_heads = spec.n_kv_heads},
       .cos = step_.on_device().cos.data(),
       .sin = step_.on_device().sin.data(),
       .n_rows = step_.count(n),
       .rows_max = n,
       .head_dim = spec.head_dim,
       .n_rot = spec.n_rot,
       .pairs = spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent});
}

void GpuBackend::swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) {
  TARN_ASSERT(gate.stride == up.stride);
  step_.enqueue(&kernels::GpuTable::swiglu, {.gate = gate.data,
                                             .up = up.data,
                                             .in_stride = gate.stride,
                                             .out = out.data,
                                             .out_stride = out.stride,
                                             .quantized = products_.acts_for(out, d),
                                             .n_rows = step_.count(n),
                                             .rows_max = n,
                                             .d = d});
}

void GpuBackend::gather(const step::Batch& batch, Rows x, u32 d, Rows out) {
  products_.forget_acts();
  const u32 n = static_cast<u32>(batch.logit_rows.size());
  step_.enqueue(&kernels::GpuTable::gather, {.x = x.data,
                                             .x_stride = x.stride,
                                             .rows = step_.on_device().logit_rows.data(),
                                             .out = out.data,
                                             .out_stride = out.stride,
                                             .n_rows = step_.count(n),
                                             .rows_max = n,
                                             .d = d});
}

void GpuBackend::fetch(Rows from, u32 n, u64 d, Rows to) {
  step_.set_mode(GpuStep::Mode::eager);
  TARN_ASSERT(from.stride == d);
  TARN_ASSERT(to.stride == d);
  step_.args().device->copy_out(std::as_writable_bytes(std::span(to.data, n * d)),
                                DevicePtr<f32>(from.data).as<std::byte>(), step_.stream());
}

void GpuBackend::summarize(Rows logits, u32 n, u32 d) {
  step_.enqueue(&kernels::GpuTable::sample,
                {.logits = logits.data,
                 .stride = logits.stride,
                 .n = d,
                 .k = 0,
                 .summary = step_.regions().logits.summaries.data(),
                 .top = nullptr,
                 .n_rows = step_.count(n) + (step_.mode() == GpuStep::Mode::eager ? 0 : 1),
                 .rows_max = n});
  if (step_.mode() == GpuStep::Mode::capture) return;
  step_.set_mode(GpuStep::Mode::eager);
  const std::span to(step_.host().summaries.data(), u64{n} * kernels::gpu_sample_chunks(d));
  step_.args().device->copy_out(
      std::as_writable_bytes(to),
      DevicePtr<kernels::GpuLogitsSummary>(step_.regions().logits.summaries.data()).as<std::byte>(),
      step_.stream());
}

kernels::LogitsSummary GpuBackend::summary(u32 row) const {
  const u32 n_chunks = kernels::gpu_sample_chunks(step_.spec().n_vocab);
  const kernels::GpuLogitsSummary of_row =
      kernels::merge_summaries(step_.host().summaries.data() + u64{row} * n_chunks, n_chunks);
  return {.argmax = of_row.argmax, .max = of_row.max, .n_not_finite = of_row.n_not_finite};
}

void GpuBackend::kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) {
  step_.enqueue(&kernels::GpuTable::kv_append, {.pages = step_.pages(cache_layer, 0),
                                                .k = k.data,
                                                .k_stride = k.stride,
                                                .v = v.data,
                                                .v_stride = v.stride,
                                                .slots = step_.on_device().slots.data(),
                                                .n_rows = step_.count(batch.n_rows),
                                                .rows_max = batch.n_rows});
}

void GpuBackend::attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) {
  const model::ModelSpec& spec = step_.spec();
  const u64 d_out = u64{spec.n_heads} * spec.head_dim;
  const bool leaves_acts =
      spec.head_dim % kGpuActBlock == 0 && products_.acts_for(out, d_out).q != nullptr;
  attention_->attend({batch, cache_layer, q, out, leaves_acts});
}

Backend::Traffic GpuBackend::take_traffic() {
  return {.weight_bytes = products_.take_weight_bytes(), .kv_bytes = attention_->take_kv_bytes()};
}

}  // namespace tarn::exec
