#include "runtime/exec/gpu/step.h"

#include "platform/base/assert.h"

namespace tarn::exec {

Result<void> GpuStep::open(const GpuBackendArgs& args) {
  TARN_ASSERT(stream_ == nullptr);
  TARN_ASSERT(args.sizes.rows_max % kernels::kGpuMatvecRowsMax == 0);
  args_ = args;
  stream_ = args_.device->stream(StreamId::compute);
  TARN_CHECK(progress_.open({.device = args_.device,
                             .stream = stream_,
                             .clock = args_.clock,
                             .window_ns = kGpuWaitNsMax}));
  auto* host_counts = on_host<u32>(0);
  for (u32 n = 0; n <= args_.sizes.rows_max; ++n) host_counts[n] = n;
  send(args_.on_device().step.counts.data(), host_counts, args_.sizes.rows_max + 1);
  return {};
}

void GpuStep::close() {
  progress_.close();
  stream_ = nullptr;
  mode_ = Mode::eager;
}

void GpuStep::place_state(u32 n_rows) {
  TARN_ASSERT(n_rows <= args_.sizes.rows_max);
  places_ = gpu_state_shape(*args_.spec, n_rows, args_.sizes.n_selecting());
}

const u32* GpuStep::count(u32 n) const {
  TARN_ASSERT(n <= args_.sizes.rows_max);
  return mode_ == Mode::eager ? args_.on_device().step.counts.data() + n
                              : on_device<u32>(places_.n_rows);
}

kernels::GpuPages GpuStep::pages(u32 cache_layer, u32 row) const {
  return {.type = args_.kv_type,
          .page_tokens = args_.sizes.group.page_tokens,
          .head_dim = args_.spec->head_dim,
          .n_kv_heads = args_.spec->n_kv_heads,
          .groups =
              reinterpret_cast<u8* const*>(args_.on_device().attention.groups.data() + cache_layer),
          .table_stride = u64{args_.spec->n_cache_layers} * args_.sizes.pages_max(),
          .group_stride = args_.spec->n_cache_layers,
          .page_stride = args_.sizes.group.page_bytes(),
          .tables = on_device<u32>(places_.sessions) + row};
}

kernels::GpuQuantized GpuStep::acts_from(u32 row, u64 k) const {
  const kernels::GpuQuantized acts = args_.acts();
  return {.q = acts.q + row * k, .side = acts.side + row * (k / kGpuActBlock)};
}

Result<void> GpuStep::finish() {
  if (mode_ == Mode::replay) return {};  // its logits are still to be fetched
  const bool is_large = places_.rows > kernels::kGpuMatvecRowsMax;
  TARN_CHECK(progress_.finish(&usual_wait_ns_[is_large]));
  return args_.device->check();
}

void attend_part(GpuStep& step, const GpuAttnPart& part) {
  const model::ModelSpec& spec = *step.args().spec;
  step.enqueue(
      step.args().table->attend,
      kernels::GpuAttnArgs{.pages = part.pages,
                           .q = part.q.data,
                           .q_stride = part.q.stride,
                           .out = part.out.data,
                           .out_stride = part.out.stride,
                           .quantized = part.quantized,
                           .visible = part.visible,
                           .n_rows = step.count(part.n_rows),
                           .rows_max = part.n_rows,
                           .n_group_heads = spec.n_heads / spec.n_kv_heads,
                           .spans_max = part.n_spans,
                           .scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim)),
                           .partial = step.args().on_device().attention.partial.data(),
                           .span_begin = part.span_begin,
                           .states = part.states,
                           .visible_stride = part.visible_stride});
}

}  // namespace tarn::exec
