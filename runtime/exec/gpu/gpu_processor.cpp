#include "runtime/exec/gpu/gpu_processor.h"

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

ArenaUse GpuProcessor::arena_use(Reserve* system, Device* device, const DeviceFacts& planned) {
  if (!planned.host_register) pin_arena(true);
  pinned_.use(device);
  return {.reserve = reach_->reserve(system, &pinned_), .for_device = true};
}

Result<void> GpuProcessor::reserve(const ProcessorArgs& args, const model::ModelDescription& model,
                                   u32 n_groups) {
  args_ = args;
  backend_args_ = {.device = args.device,
                   .table = args.gpu_kernels,
                   .clock = args.clock,
                   .spec = args.spec,
                   .kv_type = args.kv_type,
                   .sizes = args.gpu,
                   .parts = args.parts,
                   .workers = args.workers,
                   .memory = &memory_};
  has_reserved_ = true;
  TARN_CHECK(device().bind_thread());
  TARN_CHECK(load_kernels(device(), *args.gpu_kernels));
  TARN_CHECK(memory_.reserve(device(), model, args.gpu, n_groups, *args.slabs));
  TARN_CHECK(measure_memory());  // while nothing is registered
  mirror_ = Carver(args.regions.mirror);
  backend_args_.host = GpuHostMemory::carve(mirror_, *args.spec, args.gpu);
  TARN_CHECK(register_host(args.regions.mirror));  // copies find it by its host address
  return {};
}

Result<void> GpuProcessor::reach_frames(std::span<std::byte> frames,
                                        std::span<std::byte> gathered) {
  backend_.attend_in_stripes();
  TARN_TRY(const DeviceBytes on_device, register_host(frames));
  backend_args_.frames = frames.data();
  backend_args_.frames_on_device = reinterpret_cast<u64>(on_device.raw());
  if (!gathered.empty()) TARN_CHECK(register_host(gathered));
  return {};
}

// Tiled as the GPU's kernels want them, through its sink.
Result<model::Weights> GpuProcessor::load_weights(model::LoadArgs load) {
  load.tile_rows = &kernels::gpu_repack_rows;
  load.region = host().weights;
  load.sink = &memory_;
  TARN_CHECK(memory_.open_staging(load.staging, reach_->is_pinned, *args_.clock));
  const Result<model::Weights> loaded = model::load_weights(load);
  memory_.close_staging();
  return loaded;
}

// Closes the device. The thread that closes may be another than the engine's (of an Instance it is
// not). Answers of a lost device are of no use any more.
void GpuProcessor::close() {
  if (!has_reserved_) return;
  has_reserved_ = false;
  (void)device().bind_thread();
  backend_.close();
  for (; n_registered_ > 0; --n_registered_) {
    reach_->leave(device(), registered_[n_registered_ - 1]);
  }
  memory_.release();
  probe_ = {};
  driver_bytes_ = 0;
  args_ = {};
  backend_args_ = {};
}

Result<DeviceBytes> GpuProcessor::register_host(std::span<std::byte> bytes) {
  const Result<DeviceBytes> on_device = reach_->reach(device(), bytes);
  if (!on_device) return refused(on_device.error());
  registered_[n_registered_++] = bytes;
  return on_device;
}

Unexpected GpuProcessor::refused(const Error& error) {
  registration_refused_ = !reach_->is_pinned && error.status != Status::device_lost;
  return fail(error);
}

// Measures how fast the GPU reads its two kinds of memory on this box, in the plan's own: the
// largest slab and the arena, before anything is in them.
Result<void> GpuProcessor::measure_memory() {
  const DeviceFacts& facts = device().facts();
  const std::span<std::byte> host = args_.arena;
  const DeviceSlab slab = memory_.largest_slab();
  const u64 wanted = probe_bytes(facts);
  const u64 n_bytes = std::min({wanted, u64{host.size()}, slab.bytes}) / kProbeStep * kProbeStep;
  if (n_bytes == 0) return {};
  const Result<MemoryProbe> probe = probe_memory({.device = &device(),
                                                  .clock = args_.clock,
                                                  .device_memory = slab.begin,
                                                  .host_memory = host.first(n_bytes),
                                                  .host_is_pinned = reach_->is_pinned,
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
      static_cast<unsigned long long>(probe_.shared_bytes_per_s / 1'000'000), reach_->note,
      probe_.promotes_without_copy() ? "copies nothing" : "copies it");
  return {};
}

Result<StepSetup> GpuProcessor::open(const model::Weights& weights, Rows host_logits) {
  const model::ModelSpec& spec = *args_.spec;
  kernels::rope_frequencies(spec.rope_base, spec.rope_scale, spec.n_rot, weights.rope_factors,
                            host().rows.inv_freq.data());
  backend_args_.quantizes = has_quantized_layers(weights);
  TARN_CHECK(backend_.open(backend_args_));
  host_rows_.open({.device = args_.device,
                   .backend = &backend_,
                   .memory = memory_.regions().step.step,
                   .rows_max = args_.rows_max,
                   .buffer = host_logits,
                   .n_buffer_rows = args_.gpu.logit_rows_max});
  const u64 d_kv = u64{spec.n_kv_heads} * spec.head_dim;
  return StepSetup{.backend = &backend_,
                   .step = memory_.regions().step.step,
                   .rows = host().rows,
                   .embedded = {host().embedded.data(), spec.d_model},
                   .logits = {memory_.regions().logits.logits.data(), spec.n_vocab},
                   .host_values = {host().values.data(), d_kv}};
}

ProcessorFacts GpuProcessor::facts() const {
  return {.on_gpu = true,
          .device = "cuda",
          .gpu_name = device().facts().name.data(),
          .numerics_id = kv::kGpuNumericsId,
          .driver_bytes = driver_bytes_,
          .probe = probe_,
          .n_stripes_kept = backend_.attention().n_stripes_kept()};
}

Result<void> GpuProcessor::warm_up(const StepCapture& capture, FirstSteps& steps) {
  TARN_CHECK(backend_.attention().capture(capture));
  (void)backend_.take_traffic();  // of no step
  TARN_CHECK(backend_.finish());
  TARN_CHECK(steps.run());
  if (device().is_lost()) {
    const Result<void> lost = device().check();
    TARN_ASSERT(!lost);  // for ever
    return lost;
  }
  TARN_CHECK(backend_.attention().warm());
  return check_driver_bytes();
}

// Checks what the driver took beside our slabs. A GPU's own memory is held against the limit that
// the plan counted. An integrated GPU's is the system's: what other processes took meanwhile is in
// the figure, so the figure is told alone, and what is left has to be the headroom.
Result<void> GpuProcessor::check_driver_bytes() {
  const DeviceFacts& facts = device().facts();
  TARN_TRY(const u64 driver_bytes, device().driver_bytes(reach_->told_bytes(args_.host_bytes)));
  driver_bytes_ = driver_bytes;
  const u64 limit_bytes = args_.driver_bytes_max;
  args_.log.info("gpu: %s, its driver%s took %llu bytes; the plan has %llu for it",
                 facts.name.data(), facts.integrated ? " and other processes" : "",
                 static_cast<unsigned long long>(driver_bytes),
                 static_cast<unsigned long long>(limit_bytes));
  if (facts.integrated) {
    TARN_TRY(const u64 free_bytes, device().memory_free_bytes());
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
