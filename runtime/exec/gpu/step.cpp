#include "runtime/exec/gpu/step.h"

#include <algorithm>
#include <numeric>

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
  const std::span<u32> counts(regions().step.counts.data(), sizes().n_counts());
  const std::span<u32> part(reinterpret_cast<u32*>(host().state.data()),
                            host().state.size() / sizeof(u32));
  for (u64 begin = 0; begin < counts.size(); begin += part.size()) {
    const u64 n = std::min(part.size(), counts.size() - begin);
    std::iota(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(n), static_cast<u32>(begin));
    send(counts.data() + begin, part.data(), n);
    TARN_CHECK(finish());
  }
  return {};
}

void GpuStep::close() {
  progress_.close();
  stream_ = nullptr;
  mode_ = Mode::eager;
}

void GpuStep::place_state(u32 n_rows) {
  TARN_ASSERT(n_rows <= sizes().rows_max);
  Carver on_device(regions().step.state), on_host(host().state);
  device_state_ = GpuState::carve(on_device, spec(), n_rows, sizes().n_selecting());
  host_state_ = GpuState::carve(on_host, spec(), n_rows, sizes().n_selecting());
  state_bytes_ = *on_host.n_bytes().get();
}

// KV over memory and disk lies in frames, which the device sees elsewhere.
void GpuStep::send_groups(u32 table, const kv::Sequence& sequence, u32 begin, u32 end) {
  TARN_ASSERT(table < sizes().n_tables());
  TARN_ASSERT(begin <= end && end <= sizes().pages_max());
  if (begin == end) return;
  const u64 shift = args_.frames_on_device - reinterpret_cast<u64>(args_.frames);
  const u32 n_layers = spec().n_cache_layers;
  const u64 first = (u64{table} * sizes().pages_max() + begin) * n_layers;
  u64* addresses = host().groups.data() + first;
  for (u32 group = begin; group < end; ++group, addresses += n_layers) {
    for (u32 layer = 0; layer < sequence.n_cache_layers(); ++layer)
      addresses[layer] = sequence.group_address(layer, group) + shift;
  }
  send(regions().attention.groups.data() + first, host().groups.data() + first,
       u64{end - begin} * n_layers);
}

const u32* GpuStep::count(u32 n) const {
  TARN_ASSERT(n <= sizes().rows_max);
  return mode_ == Mode::eager ? regions().step.counts.data() + n : device_state_.n_rows.data();
}

kernels::GpuPages GpuStep::pages(u32 cache_layer, u32 row) const {
  return {.type = args_.kv_type,
          .page_tokens = sizes().group.page_tokens,
          .head_dim = spec().head_dim,
          .n_kv_heads = spec().n_kv_heads,
          .groups = reinterpret_cast<u8* const*>(regions().attention.groups.data() + cache_layer),
          .table_stride = u64{spec().n_cache_layers} * sizes().pages_max(),
          .group_stride = spec().n_cache_layers,
          .page_stride = sizes().group.page_bytes(),
          .tables = device_state_.sessions.data() + row};
}

kernels::GpuQuantized GpuStep::acts_from(u32 row, u64 k) const {
  const kernels::GpuQuantized acts = args_.acts();
  return {.q = acts.q + row * k, .side = acts.side + row * (k / kGpuActBlock)};
}

Result<void> GpuStep::finish() {
  if (mode_ == Mode::replay) return {};  // its logits are still to be fetched
  const bool is_large = host_state_.rows > kernels::kGpuMatvecRowsMax;
  TARN_CHECK(progress_.finish(&usual_wait_ns_[is_large]));
  return args_.device->check();
}

void attend_part(GpuStep& step, const GpuAttnPart& part) {
  const model::ModelSpec& spec = step.spec();
  // Rows that share tiles make an eighth of the CTAs: where those leave half of the GPU idle, each
  // row by itself is sooner done.
  const bool shares =
      part.one_sequence && 2 * part.n_spans * spec.n_kv_heads >= step.device().facts().n_sms;
  step.enqueue(&kernels::GpuTable::attend,
               {.pages = part.pages,
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
                .partial = step.regions().attention.partial.data(),
                .span_begin = part.span_begin,
                .states = part.states,
                .visible_stride = part.visible_stride,
                .rows_share = shares});
}

}  // namespace tarn::exec
