// How an engine is built on a GPU: the slabs, the host's mirror of what the two exchange, the
// backend over both.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "platform/base/checked.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/take.h"
#include "runtime/plan/gpu_shape.h"

namespace tarn::engine {

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

Result<void> Engine::open_gpu(const OpenArgs& args, const model::ModelDescription& model) {
  TARN_ASSERT(args.device != nullptr);
  backend_ = &gpu_backend_;
  TARN_CHECK(load_kernels(*device_, *args.gpu_kernels));
  TARN_CHECK(gpu_memory_.reserve(*device_, model, plan_));
  TARN_CHECK(measure_gpu_memory());  // while nothing is registered
  const std::span<std::byte> mirror = region(RegionId::mirror);
  mirror_ = Bump(mirror);
  TARN_CHECK(register_with_gpu(Registered::mirror, mirror));  // copies find it by its host address
  if (!plan_.tiers.is_on()) return {};
  TARN_TRY(frames_on_device_, register_with_gpu(Registered::frames, region(RegionId::kv_groups)));
  if (select_config_.is_full()) return {};
  TARN_CHECK(register_with_gpu(Registered::gathered, region(RegionId::select_scratch)));
  return {};
}

Result<DeviceBytes> Engine::register_with_gpu(Registered which, std::span<std::byte> bytes) {
  const Result<DeviceBytes> on_device =
      pins_arena_ ? device_->pinned_address(bytes) : device_->register_host(bytes);
  if (!on_device) return refused_by_gpu(on_device.error());
  registered_[static_cast<u64>(which)] = bytes;
  return on_device;
}

// What registers memory has failed: open() tries once more, with memory of the driver's own.
Unexpected Engine::refused_by_gpu(const Error& error) {
  registration_refused_ = !pins_arena_ && error.status != Status::device_lost;
  return fail(error);
}

// A region is handed out once.
std::span<std::byte> Engine::region_or_registered(RegionId id, Registered which) {
  const std::span<std::byte> registered = registered_[static_cast<u64>(which)];
  return registered.empty() ? region(id) : registered;
}

// How fast the GPU reads its two kinds of memory on this box, in the plan's own: the largest slab
// and the arena, before anything is in them.
Result<void> Engine::measure_gpu_memory() {
  const DeviceFacts& facts = device_->facts();
  const std::span<std::byte> host = arena_.whole();
  const DeviceSlab slab = gpu_memory_.largest_slab();
  const u64 wanted = probe_bytes(facts);
  const u64 n_bytes = std::min({wanted, u64{host.size()}, slab.bytes}) / kProbeStep * kProbeStep;
  if (n_bytes == 0) return {};
  const Result<MemoryProbe> probe = probe_memory({.device = device_,
                                                  .clock = clock_,
                                                  .device_memory = slab.begin,
                                                  .host_memory = host.first(n_bytes),
                                                  .host_is_pinned = pins_arena_,
                                                  .wait_ns_max = kGpuWaitNsMax});
  if (!probe) return refused_by_gpu(probe.error());
  memory_probe_ = *probe;
  if (n_bytes < wanted) {
    log_.info("gpu: its memory is measured with %llu bytes, too few to be exact",
              static_cast<unsigned long long>(n_bytes));
  }
  log_.info(
      "gpu: reads its own memory at %llu MB/s, the host's at %llu MB/s%s: promoting a page %s",
      static_cast<unsigned long long>(memory_probe_.device_bytes_per_s / 1'000'000),
      static_cast<unsigned long long>(memory_probe_.shared_bytes_per_s / 1'000'000),
      pins_arena_ ? " (it registers none)" : "",
      memory_probe_.promotes_without_copy() ? "copies nothing" : "copies it");
  return {};
}

Result<void> Engine::place_gpu_backend(const OpenArgs& args) {
  if (plan_.gpu_select.n_rows > 0) {
    TARN_CHECK(
        gpu_indexes_.open({.device = device_,
                           .backend = &gpu_backend_,
                           .clock = clock_,
                           .plan = &plan_,
                           .indexes = gpu_memory_.select_device(),
                           .window = take<std::byte>(mirror_, plan_.gpu_select.window_bytes)}));
  }
  place_selector();
  const u32 step_rows = plan::gpu_step_rows(plan_.rows_max);
  const plan::StepShape shape = plan::step_shape(spec_, step_rows);
  std::byte* step = gpu_memory_.activations();
  place_buffers(step, shape);
  place_sampling(mirror_);
  logits_ = {reinterpret_cast<f32*>(gpu_memory_.logits()), spec_.n_vocab};
  batch_.tokens = take<u32>(mirror_, step_rows).data();
  batch_.slots = batch_.positions = take<u32>(mirror_, step_rows).data();
  batch_.visible = take<u32>(mirror_, step_rows).data();
  logit_rows_ = take<u32>(mirror_, step_rows);
  runs_ = take<step::Run>(mirror_, step_rows);
  embedded_ = {};
  if (weights_.embedding_on_disk()) embedded_ = take_rows(mirror_, step_rows, spec_.d_model);
  const u64 n_pairs = spec_.n_rot / 2;
  const std::span<f64> inv_freq = take<f64>(mirror_, n_pairs);
  kernels::rope_frequencies(spec_.rope_base, spec_.rope_scale, spec_.n_rot, weights_.rope_factors,
                            inv_freq.data());

  const u64 n_attended = plan::gpu_attended_slots(plan_.context_tokens, plan_.gpu_stream.is_on());
  const u64 partials_bytes =
      align_up(plan::gpu_partials_bytes(spec_, n_attended), kDevicePieceAlignment);
  const u64 n_logits = plan_.logit_rows_max * u64{spec_.n_vocab};
  const u64 n_summaries =
      plan::gpu_summaries_bytes(spec_, plan_.logit_rows_max) / sizeof(kernels::GpuLogitsSummary);
  const plan::GpuSelectShape& select = plan_.gpu_select;
  const bool may_select = select.n_rows > 0;
  const u64 n_tables = u64{plan_.sessions_max} + select.n_rows;
  const u64 n_groups = n_tables * spec_.n_cache_layers * plan_.pages_max;
  const u64 state_bytes =
      plan::gpu_state_bytes(spec_, step_rows, may_select ? plan_.sessions_max : 0);
  std::byte* state = step + shape.rope_cos.offset_bytes;
  if (may_select) {
    state = gpu_memory_.select_gather() + (select.scratch_bytes() - select.state_bytes);
  } else {
    TARN_ASSERT(shape.rope_cos.offset_bytes + state_bytes <= shape.inv_freq.offset_bytes);
  }
  const u64 counts_bytes = (u64{step_rows} + 1) * sizeof(u32);
  return gpu_backend_.open(
      {.device = device_,
       .table = args.gpu_kernels,
       .clock = clock_,
       .spec = &spec_,
       .kv_type = kv_type_,
       .page_tokens = plan_.group_shape.page_tokens,
       .page_bytes = plan_.group_shape.page_bytes(),
       .rows_max = step_rows,
       .sessions_max = plan_.sessions_max,
       .pages_max = plan_.pages_max,
       .acts = {.q = piece_at<i8>(step, shape.act_q),
                .side = piece_at<kernels::U32x2>(step, shape.act_sums)},
       .quantizes = has_quantized_layers(weights_),
       .state = state,
       .counts = reinterpret_cast<u32*>(state + state_bytes - counts_bytes),
       .embedded = buffers_.x.data,
       .groups = reinterpret_cast<u64*>(gpu_memory_.attention() + partials_bytes),
       .partial = reinterpret_cast<f32*>(gpu_memory_.attention()),
       .summaries = reinterpret_cast<kernels::GpuLogitsSummary*>(logits_.data + n_logits),
       .inv_freq = inv_freq.data(),
       .host_state = take<std::byte>(mirror_, state_bytes).data(),
       .host_embedded = embedded_.data,
       .host_summaries = take<kernels::GpuLogitsSummary>(mirror_, n_summaries).data(),
       .host_groups = take<u64>(mirror_, n_groups).data(),
       .select = place_gpu_selection(),
       .stream = place_gpu_stream()});
}

// Empty where all KV lies on the device.
GpuStreamArgs Engine::place_gpu_stream() {
  const plan::GpuStreamShape& shape = plan_.gpu_stream;
  if (!shape.is_on()) return {};
  const std::span<std::byte> whole(gpu_memory_.attention(), plan_.of(RegionId::attention).bytes);
  std::byte* at = whole.data() + (whole.size() - shape.device_bytes());
  const auto piece = [&at](u64 bytes) { return std::exchange(at, at + bytes); };
  GpuStreamArgs args{.kv = &kv_stream_,
                     .selector = selector_.is_on() ? &selector_ : nullptr,
                     .shape = shape,
                     .frames = registered_[static_cast<u64>(Registered::frames)].data(),
                     .frames_on_device = reinterpret_cast<u64>(frames_on_device_.raw())};
  args.memory = &gpu_memory_;
  args.kept = take<std::byte>(mirror_, kv::KeptChunks::bookkeeping_bytes(shape.kept));
  args.states = reinterpret_cast<f32*>(piece(shape.states_bytes));
  args.staged = reinterpret_cast<u8*>(piece(shape.staged_bytes));
  args.gathered = reinterpret_cast<u8*>(piece(shape.gathered_bytes));
  args.tables = piece(shape.tables_bytes);
  args.host_tables = take<std::byte>(mirror_, shape.tables_bytes).data();
  args.host_query = take<f32>(mirror_, u64{spec_.n_heads} * spec_.head_dim).data();
  return args;
}

// Empty where nothing selects.
GpuSelectArgs Engine::place_gpu_selection() {
  const plan::GpuSelectShape& shape = plan_.gpu_select;
  if (shape.n_rows == 0) return {};
  GpuSelectArgs args{.selector = &selector_,
                     .method = select_config_.method,
                     .shape = shape,
                     .n_chosen_max = plan_.select.n_chosen_max};
  if (select_config_.method == SelectMethod::pq) {
    args.pq = select::pq_shape(select_config_, {spec_.head_dim, spec_.adjacent_dims()},
                               plan_.context_tokens);
    args.indexes = reinterpret_cast<u8*>(gpu_memory_.select_device());
  }
  std::byte* at = gpu_memory_.select_gather();
  const auto piece = [&at](u64 bytes) { return std::exchange(at, at + bytes); };
  args.lut = reinterpret_cast<f32*>(piece(shape.lut_bytes));
  args.scores = reinterpret_cast<f32*>(piece(shape.scores_bytes));
  args.weights = reinterpret_cast<f32*>(piece(shape.weights_bytes));
  args.places = reinterpret_cast<u32*>(piece(shape.places_bytes));
  args.gathered = reinterpret_cast<u8*>(piece(shape.gathered_bytes));
  return args;
}

// Chunks that stay on the device need no frames.
void Engine::leave_out_kept_chunks() {
  if (plan_.gpu_stream.n_kept == 0) return;
  for (step::Run& run : runs_.first(n_runs_)) {
    if (!run.selects) run.offloaded_end = gpu_backend_.n_kept_groups(run);
  }
}

Result<void> Engine::capture_step(u32 n_rows) {
  step::Batch batch = batch_;
  batch.n_rows = n_rows;
  batch.logit_rows = logit_rows_.first(n_rows);  // as many, which is all that counts
  const ForwardArgs forward{.backend = &gpu_backend_,
                            .spec = &spec_,
                            .weights = &weights_,
                            .buffers = &buffers_,
                            .batch = &batch};
  forward_layers(forward);
  forward_logits(forward, 0, n_rows, logits_);
  gpu_backend_.summarize(logits_, n_rows, spec_.n_vocab);
  return gpu_backend_.end_graph();
}

// Every decode step's graph, so that nothing is captured after READY. The state that the ops see
// stands for a full bucket; what the kernels read is in the device's memory when a graph runs.
Result<void> Engine::capture_graphs() {
  if (plan_.gpu_stream.is_on()) return {};  // the host has its part in every layer
  const u32 rows_max = std::min(plan_.sessions_max, kernels::kGpuMatvecRowsMax);
  const u32 spans_max = plan::gpu_spans(plan_.context_tokens);
  for (u32 n_rows = 1; n_rows <= std::bit_ceil(rows_max); n_rows *= 2) {
    for (u32 n_spans = 1; n_spans <= std::bit_ceil(spans_max); n_spans *= 2) {
      TARN_CHECK(gpu_backend_.begin_graph(n_rows, std::min(n_spans, spans_max)));
      TARN_CHECK(capture_step(n_rows));
    }
  }
  if (plan_.gpu_select.n_rows > 0) {
    TARN_CHECK(gpu_backend_.begin_selecting_graph());
    TARN_CHECK(capture_step(1));
  }
  return gpu_backend_.finish();
}

// A prompt of two tokens and one token more, and every graph once: all have run before the driver's
// part is measured, as it may grow when one first does. It leaves nothing: the session is given
// back, its steps are not counted.
Result<void> Engine::warm_up() {
  constexpr std::array<u32, 2> kPrompt = {0, 0};
  TARN_TRY(const SessionIdx idx, create_session());
  TARN_CHECK(feed(idx, kPrompt));
  TARN_CHECK(generate(idx, {.max_tokens = 2, .ignore_end = true}));
  while (has_work()) step();
  if (device_lost()) {
    const Result<void> lost = device_->check();
    TARN_ASSERT(!lost);  // for ever
    return lost;
  }
  destroy_session(idx);
  TARN_CHECK(gpu_backend_.warm_graphs());
  counters_ = {.load_ns = counters_.load_ns};
  trace_ = {};
  return {};
}

// What the driver took beside our slabs. A GPU's own memory is held against the limit that the plan
// counted. An integrated GPU's is the system's: what other processes took meanwhile is in the
// figure, so the figure is told alone, and what is left has to be the headroom.
Result<void> Engine::check_driver_bytes() {
  const DeviceFacts& facts = device_->facts();
  // Of pinned memory the device knows itself.
  TARN_TRY(const u64 driver_bytes, device_->driver_bytes(pins_arena_ ? 0 : plan_.host_bytes));
  driver_bytes_ = driver_bytes;
  const u64 limit_bytes = plan_.of(RegionId::driver).bytes;
  log_.info("gpu: %s, its driver%s took %llu bytes; the plan has %llu for it", facts.name.data(),
            facts.integrated ? " and other processes" : "",
            static_cast<unsigned long long>(driver_bytes),
            static_cast<unsigned long long>(limit_bytes));
  if (facts.integrated) {
    TARN_TRY(const u64 free_bytes, device_->memory_free_bytes());
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

}  // namespace tarn::engine
