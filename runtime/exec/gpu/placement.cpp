#include "runtime/exec/gpu/placement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/plan/gpu_shape.h"

namespace tarn::exec {

using plan::RegionId;

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

Reserve* GpuPlacement::pinned_reserve(Device* device) {
  pinned_reserve_.init(device);
  return &pinned_reserve_;
}

Result<void> GpuPlacement::reserve(const Args& args, const model::ModelDescription& model) {
  TARN_ASSERT(args.device != nullptr);
  args_ = args;
  const auto region = [&](RegionId id) { return args_.arena->region(static_cast<u32>(id)); };
  TARN_CHECK(load_kernels(*args_.device, *args_.kernels));
  TARN_CHECK(memory_.reserve(*args_.device, model, *args_.plan));
  TARN_CHECK(measure_memory());  // while nothing is registered
  const std::span<std::byte> mirror = region(RegionId::mirror);
  mirror_ = Carver(mirror);
  TARN_CHECK(register_host(Registered::mirror, mirror));  // copies find it by its host address
  if (!args_.plan->tiers.is_on()) return {};
  TARN_TRY(frames_on_device_, register_host(Registered::frames, region(RegionId::kv_groups)));
  if (args_.select->is_full()) return {};
  TARN_CHECK(register_host(Registered::gathered, region(RegionId::select_scratch)));
  return {};
}

// Tiled as the GPU's kernels want them, through its sink.
Result<model::Weights> GpuPlacement::load_weights(model::LoadArgs load) {
  load.tile_rows = &kernels::gpu_repack_rows;
  load.region = mirror_.take<std::byte>("", model::weights_host_bytes(*args_.spec));
  load.sink = &memory_;
  TARN_CHECK(memory_.open_staging(load.staging, pins_arena_, *args_.clock));
  const Result<model::Weights> loaded = model::load_weights(load);
  memory_.close_staging();
  return loaded;
}

void GpuPlacement::close() {
  backend_.close();
  indexes_.close();
  for (const std::span<std::byte> bytes : registered_) {
    if (!bytes.empty() && !pins_arena_) args_.device->unregister_host(bytes);
  }
  registered_ = {};
  memory_.release();
  probe_ = {};
  driver_bytes_ = 0;
  args_ = {};
}

Result<DeviceBytes> GpuPlacement::register_host(Registered which, std::span<std::byte> bytes) {
  const Result<DeviceBytes> on_device =
      pins_arena_ ? args_.device->pinned_address(bytes) : args_.device->register_host(bytes);
  if (!on_device) return refused(on_device.error());
  registered_[static_cast<u64>(which)] = bytes;
  return on_device;
}

Unexpected GpuPlacement::refused(const Error& error) {
  registration_refused_ = !pins_arena_ && error.status != Status::device_lost;
  return fail(error);
}

// How fast the GPU reads its two kinds of memory on this box, in the plan's own: the largest slab
// and the arena, before anything is in them.
Result<void> GpuPlacement::measure_memory() {
  const DeviceFacts& facts = args_.device->facts();
  const std::span<std::byte> host = args_.arena->whole();
  const DeviceSlab slab = memory_.largest_slab();
  const u64 wanted = probe_bytes(facts);
  const u64 n_bytes = std::min({wanted, u64{host.size()}, slab.bytes}) / kProbeStep * kProbeStep;
  if (n_bytes == 0) return {};
  const Result<MemoryProbe> probe = probe_memory({.device = args_.device,
                                                  .clock = args_.clock,
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

Result<void> GpuPlacement::open_indexes() {
  if (args_.plan->gpu_select.n_rows == 0) return {};
  return indexes_.open(
      {.device = args_.device,
       .backend = &backend_,
       .clock = args_.clock,
       .plan = args_.plan,
       .indexes = memory_.select_device(),
       .window = mirror_.take<std::byte>("", args_.plan->gpu_select.window_bytes)});
}

Result<void> GpuPlacement::open_backend(const Step& step) {
  const plan::Plan& plan = *args_.plan;
  const model::ModelSpec& spec = *args_.spec;
  const u64 n_pairs = spec.n_rot / 2;
  const std::span<f64> inv_freq = mirror_.take<f64>("", n_pairs);
  kernels::rope_frequencies(spec.rope_base, spec.rope_scale, spec.n_rot, step.weights->rope_factors,
                            inv_freq.data());

  const u64 n_attended = plan::gpu_attended_slots(plan.context_tokens, plan.gpu_stream.is_on());
  const u64 partials_bytes =
      align_up(plan::gpu_partials_bytes(spec, n_attended), kDevicePieceAlignment);
  const u64 n_logits = plan.logit_rows_max * u64{spec.n_vocab};
  const u64 n_summaries =
      plan::gpu_summaries_bytes(spec, plan.logit_rows_max) / sizeof(kernels::GpuLogitsSummary);
  const plan::GpuSelectShape& select = plan.gpu_select;
  const bool may_select = select.n_rows > 0;
  const u64 n_tables = u64{plan.sessions_max} + select.n_rows;
  const u64 n_groups = n_tables * spec.n_cache_layers * plan.pages_max;
  const u64 state_bytes =
      plan::gpu_state_bytes(spec, step.rows_max, may_select ? plan.sessions_max : 0);
  auto* state = reinterpret_cast<std::byte*>(step.memory.rope_cos.data());
  if (may_select) {
    state = memory_.select_gather() + (select.scratch_bytes() - select.state_bytes);
  } else {
    TARN_ASSERT(state + state_bytes <= reinterpret_cast<std::byte*>(step.memory.inv_freq.data()));
  }
  const u64 counts_bytes = (u64{step.rows_max} + 1) * sizeof(u32);
  return backend_.open(
      {.device = args_.device,
       .table = args_.kernels,
       .clock = args_.clock,
       .spec = args_.spec,
       .kv_type = args_.kv_type,
       .page_tokens = plan.group_shape.page_tokens,
       .page_bytes = plan.group_shape.page_bytes(),
       .rows_max = step.rows_max,
       .sessions_max = plan.sessions_max,
       .pages_max = plan.pages_max,
       .parts = args_.parts,
       .acts = {.q = step.memory.act_q.data(),
                .side = reinterpret_cast<kernels::U32x2*>(step.memory.act_sums.data())},
       .quantizes = has_quantized_layers(*step.weights),
       .state = state,
       .counts = reinterpret_cast<u32*>(state + state_bytes - counts_bytes),
       .embedded = step.x,
       .groups = reinterpret_cast<u64*>(memory_.attention() + partials_bytes),
       .partial = reinterpret_cast<f32*>(memory_.attention()),
       .summaries = reinterpret_cast<kernels::GpuLogitsSummary*>(step.logits + n_logits),
       .inv_freq = inv_freq.data(),
       .host_state = mirror_.take<std::byte>("", state_bytes).data(),
       .host_embedded = step.host_embedded,
       .host_summaries = mirror_.take<kernels::GpuLogitsSummary>("", n_summaries).data(),
       .host_groups = mirror_.take<u64>("", n_groups).data(),
       .select = place_selection(),
       .stream = place_stream()});
}

// Empty where all KV lies on the device.
GpuStreamArgs GpuPlacement::place_stream() {
  const plan::GpuStreamShape& shape = args_.plan->gpu_stream;
  if (!shape.is_on()) return {};
  const std::span<std::byte> whole(memory_.attention(), args_.plan->of(RegionId::attention).bytes);
  std::byte* at = whole.data() + (whole.size() - shape.device_bytes());
  const auto piece = [&at](u64 bytes) { return std::exchange(at, at + bytes); };
  GpuStreamArgs args{.shape = shape,
                     .workers = args_.workers,
                     .frames = registered(Registered::frames).data(),
                     .frames_on_device = reinterpret_cast<u64>(frames_on_device_.raw())};
  args.memory = &memory_;
  args.kept = mirror_.take<std::byte>("", kv::KeptChunks::bookkeeping_bytes(shape.kept));
  args.states = reinterpret_cast<f32*>(piece(shape.states_bytes));
  args.staged = reinterpret_cast<u8*>(piece(shape.staged_bytes));
  args.gathered = reinterpret_cast<u8*>(piece(shape.gathered_bytes));
  args.tables = piece(shape.tables_bytes);
  args.host_tables = mirror_.take<std::byte>("", shape.tables_bytes).data();
  args.host_query = mirror_.take<f32>("", u64{args_.spec->n_heads} * args_.spec->head_dim).data();
  return args;
}

// Empty where nothing selects.
GpuSelectArgs GpuPlacement::place_selection() {
  const plan::GpuSelectShape& shape = args_.plan->gpu_select;
  if (shape.n_rows == 0) return {};
  GpuSelectArgs args{.codes = args_.plan->select.codes,
                     .shape = shape,
                     .n_chosen_max = args_.plan->select.n_chosen_max};
  if (args.codes.exist()) args.indexes = reinterpret_cast<u8*>(memory_.select_device());
  std::byte* at = memory_.select_gather();
  const auto piece = [&at](u64 bytes) { return std::exchange(at, at + bytes); };
  args.lut = reinterpret_cast<f32*>(piece(shape.lut_bytes));
  args.scores = reinterpret_cast<f32*>(piece(shape.scores_bytes));
  args.weights = reinterpret_cast<f32*>(piece(shape.weights_bytes));
  args.places = reinterpret_cast<u32*>(piece(shape.places_bytes));
  args.gathered = reinterpret_cast<u8*>(piece(shape.gathered_bytes));
  return args;
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
  backend_.summarize(logits, batch.n_rows, args_.spec->n_vocab);
  return backend_.graphs().end();
}

Result<void> GpuPlacement::capture_graphs(const ForwardArgs& forward,
                                          std::span<const u32> logit_rows, step::Rows logits) {
  const plan::Plan& plan = *args_.plan;
  if (plan.gpu_stream.is_on()) return {};  // the host has its part in every layer
  const u32 rows_max = std::min(plan.sessions_max, kernels::kGpuMatvecRowsMax);
  const u32 spans_max = plan::gpu_spans(plan.context_tokens);
  for (u32 n_rows = 1; n_rows <= std::bit_ceil(rows_max); n_rows *= 2) {
    for (u32 n_spans = 1; n_spans <= std::bit_ceil(spans_max); n_spans *= 2) {
      TARN_CHECK(backend_.graphs().begin(n_rows, std::min(n_spans, spans_max)));
      TARN_CHECK(capture_step(forward, logit_rows.first(n_rows), logits));
    }
  }
  if (plan.gpu_select.n_rows > 0) {
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
  const DeviceFacts& facts = args_.device->facts();
  // Of pinned memory the device knows itself.
  TARN_TRY(const u64 driver_bytes,
           args_.device->driver_bytes(pins_arena_ ? 0 : args_.plan->host_bytes));
  driver_bytes_ = driver_bytes;
  const u64 limit_bytes = args_.plan->of(RegionId::driver).bytes;
  args_.log.info("gpu: %s, its driver%s took %llu bytes; the plan has %llu for it",
                 facts.name.data(), facts.integrated ? " and other processes" : "",
                 static_cast<unsigned long long>(driver_bytes),
                 static_cast<unsigned long long>(limit_bytes));
  if (facts.integrated) {
    TARN_TRY(const u64 free_bytes, args_.device->memory_free_bytes());
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
