#include "runtime/exec/gpu/placement.h"

#include <algorithm>
#include <bit>

#include "platform/base/assert.h"

namespace tarn::exec {

namespace {

constexpr u64 kProbeStep = 4 * kKiB;  // what a region is aligned to

bool has_quantized_layers(const model::Weights& weights) {
  const auto is_quantized = [](const model::WeightMatrix& weight) {
    return weight.type != kernels::TensorType::f16;
  };
  return std::ranges::any_of(weights.layers, [&](const model::LayerWeights& layer) {
    return is_quantized(layer.attn_q) || is_quantized(layer.attn_k) || is_quantized(layer.attn_v) ||
           is_quantized(layer.attn_output) || is_quantized(layer.ffn_gate) ||
           is_quantized(layer.ffn_up) || is_quantized(layer.ffn_down);
  });
}

Result<void> load_kernels(Device& device, const kernels::GpuTable& table) {
  struct Loading {
    Device& device;
    Result<void> result{};
  } loading{device};
  table.each_kernel({&loading, [](void* context, const void* kernel) {
                       auto& to = *static_cast<Loading*>(context);
                       if (to.result) to.result = to.device.load_kernel(kernel);
                     }});
  return loading.result;
}

}  // namespace

Result<void> GpuPlacement::reserve(const Args& args, const model::ModelDescription& model) {
  args_ = args;
  GpuBackendArgs& backend = args_.backend;
  TARN_CHECK(load_kernels(*backend.device, *backend.table));
  TARN_CHECK(memory_.reserve(*backend.device, model, backend.sizes, args_.n_groups, *args_.slabs));
  TARN_CHECK(measure_memory());  // while nothing is registered
  mirror_ = Carver(args_.mirror);
  backend.host = GpuHostMemory::carve(mirror_, *backend.spec, backend.sizes);
  TARN_CHECK(register_host(args_.mirror));  // copies find it by its host address
  if (!args_.frames.empty()) {
    TARN_TRY(const DeviceBytes on_device, register_host(args_.frames));
    backend.frames = args_.frames.data();
    backend.frames_on_device = reinterpret_cast<u64>(on_device.raw());
  }
  if (!args_.gathered.empty()) TARN_CHECK(register_host(args_.gathered));
  return {};
}

// Tiled as the GPU's kernels want them, through its sink.
Result<model::Weights> GpuPlacement::load_weights(model::LoadArgs load) {
  load.tile_rows = &kernels::gpu_repack_rows;
  load.region = host().weights;
  load.sink = &memory_;
  TARN_CHECK(memory_.open_staging(load.staging, pins_arena_, *args_.backend.clock));
  const Result<model::Weights> loaded = model::load_weights(load);
  memory_.close_staging();
  return loaded;
}

void GpuPlacement::close() {
  backend_.close();
  for (; n_registered_ > 0; --n_registered_) {
    if (!pins_arena_) args_.backend.device->unregister_host(registered_[n_registered_ - 1]);
  }
  memory_.release();
  probe_ = {};
  driver_bytes_ = 0;
  args_ = {};
}

Result<DeviceBytes> GpuPlacement::register_host(std::span<std::byte> bytes) {
  const Result<DeviceBytes> on_device = pins_arena_ ? args_.backend.device->pinned_address(bytes)
                                                    : args_.backend.device->register_host(bytes);
  if (!on_device) return refused(on_device.error());
  registered_[n_registered_++] = bytes;
  return on_device;
}

Unexpected GpuPlacement::refused(const Error& error) {
  registration_refused_ = !pins_arena_ && error.status != Status::device_lost;
  return fail(error);
}

// How fast the GPU reads its two kinds of memory on this box, in the plan's own: the largest slab
// and the arena, before anything is in them.
Result<void> GpuPlacement::measure_memory() {
  const DeviceFacts& facts = args_.backend.device->facts();
  const std::span<std::byte> host = args_.arena;
  const DeviceSlab slab = memory_.largest_slab();
  const u64 wanted = probe_bytes(facts);
  const u64 n_bytes = std::min({wanted, u64{host.size()}, slab.bytes}) / kProbeStep * kProbeStep;
  if (n_bytes == 0) return {};
  const Result<MemoryProbe> probe = probe_memory({.device = args_.backend.device,
                                                  .clock = args_.backend.clock,
                                                  .device_memory = slab.begin,
                                                  .host_memory = host.first(n_bytes),
                                                  .host_is_pinned = pins_arena_,
                                                  .wait_ns_max = kGpuWaitNsMax});
  if (!probe) return refused(probe.error());
  probe_ = *probe;
  if (n_bytes < wanted) {
    args_.log.info("gpu: its memory is measured with %llu bytes, too few to be exact",
                   static_cast<unsigned long long>(n_bytes));
  }
  args_.log.info(
      "gpu: reads its own memory at %llu MB/s, the host's at %llu MB/s%s: promoting a page %s",
      static_cast<unsigned long long>(probe_.device_bytes_per_s / 1'000'000),
      static_cast<unsigned long long>(probe_.shared_bytes_per_s / 1'000'000),
      pins_arena_ ? " (it registers none)" : "",
      probe_.promotes_without_copy() ? "copies nothing" : "copies it");
  return {};
}

Result<void> GpuPlacement::open_backend(const model::Weights& weights) {
  const model::ModelSpec& spec = *args_.backend.spec;
  kernels::rope_frequencies(spec.rope_base, spec.rope_scale, spec.n_rot, weights.rope_factors,
                            host().rows.inv_freq.data());
  args_.backend.quantizes = has_quantized_layers(weights);
  args_.backend.memory = &memory_;
  return backend_.open(args_.backend);
}

Result<void> GpuPlacement::capture_step(const ForwardArgs& forward, std::span<const u32> logit_rows,
                                        step::Rows logits) {
  step::Batch batch = *forward.batch;
  batch.n_rows = static_cast<u32>(logit_rows.size());
  batch.logit_rows = logit_rows;  // as many, which is all that counts
  ForwardArgs of_step = forward;
  of_step.batch = &batch;
  forward_layers(of_step);
  forward_logits(of_step, 0, batch.n_rows, logits);
  backend_.summarize(logits, batch.n_rows, args_.backend.spec->n_vocab);
  return backend_.graphs().end();
}

Result<void> GpuPlacement::capture_graphs(const ForwardArgs& forward,
                                          std::span<const u32> logit_rows, step::Rows logits) {
  if (args_.backend.sizes.in_stripes) return {};  // the host has its part in every layer
  const u32 rows_max = std::min(args_.backend.sizes.sessions_max, kernels::kGpuMatvecRowsMax);
  const u32 spans_max = gpu_spans(args_.backend.sizes.context_tokens);
  for (u32 n_rows = 1; n_rows <= std::bit_ceil(rows_max); n_rows *= 2) {
    for (u32 n_spans = 1; n_spans <= std::bit_ceil(spans_max); n_spans *= 2) {
      TARN_CHECK(backend_.graphs().begin(n_rows, std::min(n_spans, spans_max)));
      TARN_CHECK(capture_step(forward, logit_rows.first(n_rows), logits));
    }
  }
  if (args_.backend.sizes.choosing_rows() > 0) {
    TARN_CHECK(backend_.graphs().begin_choosing());
    TARN_CHECK(capture_step(forward, logit_rows.first(1), logits));
  }
  (void)backend_.take_traffic();  // of no step
  return backend_.finish();
}

// What the driver took beside our slabs. A GPU's own memory is held against the limit that the plan
// counted. An integrated GPU's is the system's: what other processes took meanwhile is in the
// figure, so the figure is told alone, and what is left has to be the headroom.
Result<void> GpuPlacement::check_driver_bytes() {
  const DeviceFacts& facts = args_.backend.device->facts();
  // Of pinned memory the device knows itself.
  TARN_TRY(const u64 driver_bytes,
           args_.backend.device->driver_bytes(pins_arena_ ? 0 : args_.host_bytes));
  driver_bytes_ = driver_bytes;
  const u64 limit_bytes = args_.driver_bytes_max;
  args_.log.info("gpu: %s, its driver%s took %llu bytes; the plan has %llu for it",
                 facts.name.data(), facts.integrated ? " and other processes" : "",
                 static_cast<unsigned long long>(driver_bytes),
                 static_cast<unsigned long long>(limit_bytes));
  if (facts.integrated) {
    TARN_TRY(const u64 free_bytes, args_.backend.device->memory_free_bytes());
    if (free_bytes >= facts.headroom_bytes) return {};
    return fail(
        {.status = Status::over_budget,
         .hint = "the model is loaded and leaves the system {0} bytes of memory, which "
                 "needs {1}: lower the budget or -c, or stop other programs",
         .figures = {{{"free_bytes", free_bytes}, {"headroom_bytes", facts.headroom_bytes}}}});
  }
  if (driver_bytes <= limit_bytes) return {};
  return fail({.status = Status::over_budget,
               .hint = "the GPU's driver took {0} bytes of memory and may take {1}: raise "
                       "device.driver_limit_bytes",
               .figures = {{{"driver_bytes", driver_bytes}, {"limit_bytes", limit_bytes}}}});
}

}  // namespace tarn::exec
