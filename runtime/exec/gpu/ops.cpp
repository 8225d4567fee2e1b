#include "runtime/exec/gpu/ops.h"

#include <algorithm>
#include <bit>

#include "kernels/quant/gpu_tile.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::exec {
namespace {

constexpr u32 kRowsMax = kernels::kGpuMatvecRowsMax;  // of one launch of a product

}  // namespace

void GpuOps::embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) {
  step_.enqueue(&kernels::GpuTable::embed, {.type = table.type,
                                            .weights = table.tiled,
                                            .k = table.k,
                                            .tokens = step_.on_device().tokens.data(),
                                            .out = out.data,
                                            .out_stride = out.stride,
                                            .n_rows = step_.count(batch.n_rows),
                                            .rows_max = batch.n_rows});
  traffic_.weight_bytes += batch.n_rows * kernels::row_bytes(table.type, table.k);
}

kernels::GpuQuantized GpuOps::acts_for(Rows x, u64 k) {
  const bool is_wanted = step_.args().quantizes && k % kGpuActBlock == 0;
  quantized_ = is_wanted ? x.data : nullptr;
  return is_wanted ? step_.args().acts() : kernels::GpuQuantized{};
}

void GpuOps::rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) {
  step_.enqueue(&kernels::GpuTable::rms_norm, {.x = x.data,
                                               .x_stride = x.stride,
                                               .weight = weight,
                                               .out = out.data,
                                               .out_stride = out.stride,
                                               .quantized = acts_for(out, d),
                                               .n_rows = step_.count(n),
                                               .rows_max = n,
                                               .n_heads = 1,
                                               .d = d,
                                               .eps = eps});
}

void GpuOps::rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) {
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

void GpuOps::quantize(Rows x, u32 k, u32 n) {
  step_.enqueue(&kernels::GpuTable::quantize, {.x = x.data,
                                               .x_stride = x.stride,
                                               .out = step_.args().acts(),
                                               .n_rows = step_.count(n),
                                               .rows_max = n,
                                               .k = k});
}

void GpuOps::project(Rows x, u32 n, std::span<const Projection> projections) {
  multiply(x, n, projections, kernels::Store::set);
}

void GpuOps::project_add(const ResidualProjection& p, u32 n) {
  const Projection product[] = {{p.weight, nullptr, p.x}};
  multiply(p.in, n, product, kernels::Store::add);
}

void GpuOps::multiply(Rows x, u32 n, std::span<const Projection> projections,
                      kernels::Store store) {
  TARN_ASSERT(projections.size() <= kernels::kGpuMatricesMax);
  const u32 k = projections[0].weight->k;
  const kernels::GpuMatvecArgs none{.matrices = {},
                                    .n_matrices = 0,
                                    .k = k,
                                    .x = x.data,
                                    .x_stride = x.stride,
                                    .acts = step_.args().acts(),
                                    .n_rows = step_.count(n),
                                    .rows_max = n};
  kernels::GpuMatvecArgs few = none, many = none;  // by 8 rows, and all rows at once
  bool is_quantized = false;
  for (const Projection& p : projections) {
    const kernels::TensorType type = p.weight->type;
    TARN_ASSERT(p.weight->k == k);
    is_quantized = is_quantized || type != kernels::TensorType::f16;
    const bool at_once = n > kRowsMax && kernels::gpu_matmat_takes(type, k);
    traffic_.weight_bytes += p.weight->bytes() * (at_once ? 1 : ceil_div(n, kRowsMax));
    kernels::GpuMatvecArgs& product = at_once ? many : few;
    product.matrices[product.n_matrices++] = {.type = type,
                                              .store = store,
                                              .n_out = static_cast<u32>(p.weight->n_out),
                                              .weights = p.weight->tiled,
                                              .bias = p.bias,
                                              .out = p.out.data,
                                              .out_stride = p.out.stride};
  }
  if (is_quantized && quantized_ != x.data) quantize(x, k, n);
  quantized_ = nullptr;
  if (many.n_matrices > 0) step_.enqueue(&kernels::GpuTable::matmat, many);
  if (few.n_matrices == 0) return;
  for (u32 begin = 0; begin < n; begin += kRowsMax) {
    const u32 n_rows = std::min(kRowsMax, n - begin);
    kernels::GpuMatvecArgs product = few;
    product.x = from_row(x, begin).data;
    product.acts = step_.acts_from(begin, k);
    product.n_rows = step_.count(n_rows);
    product.rows_max = std::bit_ceil(n_rows);
    for (u32 i = 0; i < product.n_matrices; ++i) {
      product.matrices[i].out += begin * product.matrices[i].out_stride;
    }
    step_.enqueue(&kernels::GpuTable::matvec, product);
  }
}

void GpuOps::rope(Rows q, Rows k, u32 n) {
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

void GpuOps::swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) {
  TARN_ASSERT(gate.stride == up.stride);
  step_.enqueue(&kernels::GpuTable::swiglu, {.gate = gate.data,
                                             .up = up.data,
                                             .in_stride = gate.stride,
                                             .out = out.data,
                                             .out_stride = out.stride,
                                             .quantized = acts_for(out, d),
                                             .n_rows = step_.count(n),
                                             .rows_max = n,
                                             .d = d});
}

void GpuOps::gather(const step::Batch& batch, Rows x, u32 d, Rows out) {
  quantized_ = nullptr;
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

void GpuOps::fetch(Rows from, u32 n, u64 d, Rows to) {
  step_.set_mode(GpuStep::Mode::eager);
  TARN_ASSERT(from.stride == d);
  TARN_ASSERT(to.stride == d);
  step_.args().device->copy_out(std::as_writable_bytes(std::span(to.data, n * d)),
                                DevicePtr<f32>(from.data).as<std::byte>(), step_.stream());
}

void GpuOps::summarize(Rows logits, u32 n, u32 d) {
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

kernels::LogitsSummary GpuOps::summary(u32 row) const {
  const u32 n_chunks = kernels::gpu_sample_chunks(step_.spec().n_vocab);
  const kernels::GpuLogitsSummary of_row =
      kernels::merge_summaries(step_.host().summaries.data() + u64{row} * n_chunks, n_chunks);
  return {.argmax = of_row.argmax, .max = of_row.max, .n_not_finite = of_row.n_not_finite};
}

Backend::Traffic GpuOps::take_traffic() {
  const Traffic traffic = traffic_;
  traffic_ = {};
  return traffic;
}

}  // namespace tarn::exec
