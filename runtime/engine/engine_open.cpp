// How an engine is built: file -> description -> plan -> arena -> weights -> sealed.
#include <array>
#include <new>

#include "platform/base/assert.h"
#include "platform/gpu/device.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/engine_memory.h"
#include "runtime/engine/model_file.h"
#include "runtime/engine/take.h"
#include "runtime/plan/gpu_shape.h"
#include "runtime/plan/kv_tables.h"

namespace tarn::engine {

using plan::RegionId;

Result<void> Engine::open(const OpenArgs& args) {
  clock_ = args.clock;
  log_ = args.log;
  device_ = args.device;
  device_lost_.store(false);
  gpu_.pin_arena(false);
  Result<void> opened = load(args);
  if (!opened) close();
  if (opened || !gpu_.registration_refused()) return opened;
  log_.info("gpu: its driver does not register the host's memory: its own serves");
  device_ = args.device;
  gpu_.pin_arena(true);
  opened = load(args);
  if (!opened) close();
  return opened;
}

Result<void> Engine::load(const OpenArgs& args) {
  select_config_ = args.config.select;
  kv_type_ = plan::kv_type(args.config);
  if (device_ != nullptr) TARN_CHECK(device_->bind_thread());
  TARN_TRY(table_, kernels::cpu_table_select(args.config.isa.data()));
  ModelFile file;
  TARN_CHECK(file.open(args));
  if (file.io_why_not() != nullptr) log_.info("io: threads (%s)", file.io_why_not());
  status_.io = file.io().name();
  const WorkerCpus workers(args);
  TARN_TRY(const plan::Inputs inputs, plan_inputs(file, args, workers.n));
  const bool runs_on_gpu = inputs.device.kind != DeviceKind::cpu;
  if (!runs_on_gpu && args.gpu_kernels != nullptr) device_ = nullptr;  // it is not asked any more
  TARN_TRY(plan_, plan::plan_memory(inputs));
  if (!plan_.fits) return fail(plan::over_budget_error(plan_, inputs));
  spec_ = file.description().spec;

  gpu_.pin_arena(runs_on_gpu && (gpu_.pins_arena() || !inputs.device.host_register));
  const LockMode lock = args.config.lock == LockChoice::require   ? LockMode::require
                        : args.config.lock == LockChoice::attempt ? LockMode::attempt
                                                                  : LockMode::off;
  TARN_CHECK(
      arena_.build({.regions = plan_.regions,
                    .reserve = gpu_.pins_arena() ? gpu_.pinned_reserve(device_) : args.reserve,
                    .lock = lock,
                    .huge_pages = args.config.huge_pages,
                    .for_device = runs_on_gpu}));
  TARN_CHECK(
      workers_.start({.n_workers = workers.n,
                      .cpus = args.config.pin_threads ? workers.cpus : std::span<const u32>{},
                      .sink = args.sink}));
  if (runs_on_gpu) {
    backend_ = &gpu_.backend();
    TARN_CHECK(gpu_.reserve({.device = device_,
                             .clock = clock_,
                             .log = log_,
                             .plan = &plan_,
                             .spec = &spec_,
                             .select = &select_config_,
                             .kv_type = kv_type_,
                             .arena = &arena_,
                             .parts = &step_parts_,
                             .workers = &workers_,
                             .kernels = args.gpu_kernels},
                            file.description()));
  }
  const u64 start_ns = clock_->now_ns();
  const std::span<std::byte> staging = region(RegionId::io_staging);
  TARN_TRY(weights_, load_weights(args, {.io = &file.io(),
                                         .file = file.file(),
                                         .model = &file.description(),
                                         .staging = staging}));
  status_.counters.load_ns = clock_->now_ns() - start_ns;
  if (weights_.embedding_on_disk()) {  // the loader is done with its memory
    TARN_CHECK(embedding_.open({.path = args.model_path,
                                .io_kind = io_kind(args.config),
                                .table = weights_.token_embd_on_disk,
                                .memory = staging}));
  }
  TARN_TRY(tokenizer_, text::Tokenizer::build(file.gguf(), region(RegionId::tokenizer)));
  if (on_gpu()) {
    TARN_CHECK(place_gpu_backend());
  } else {
    place_selector();
    place_cpu_backend();
  }
  TARN_CHECK(place_sessions(args));
  TARN_CHECK(place_text());
  if (on_gpu()) {
    TARN_CHECK(gpu_.capture_graphs(forward_args(), logit_rows_, logits_));
    TARN_CHECK(warm_up());
    TARN_CHECK(gpu_.check_driver_bytes());
  }
  arena_.seal();
  note_opened();
  if (!select_config_.is_full()) {
    log_.info("select: %s, verified: %s", status_.select,
              status_.select_verified ? "true" : "false");
  }
  log_.info("ready: %s, %u layers, isa %s, %u workers, %llu bytes reserved",
            model::arch_name(spec_.arch), spec_.n_layers, backend_->isa(), workers_.n_workers(),
            static_cast<unsigned long long>(plan_.total_bytes));
  return {};
}

void Engine::close() {
  if (session_store_.is_on()) {
    end_publication();
    leave_indexes();
  }
  workers_.stop();
  kv_.close();
  session_store_.close();
  // The thread that closes may be another than the engine's (of an Instance it is not). What a lost
  // device answers here is of no use any more.
  if (device_ != nullptr) (void)device_->bind_thread();
  gpu_.close();
  backend_ = &cpu_backend_;
  selector_.close();
  embedding_.close();
  if (kv_.tiers().store.take_abandoned()) {
    log_.error(
        "requests to the store's disk do not end: memory of the engine, and the lock of the "
        "store's file, stay until this process ends");
    arena_.leave();
  }
  arena_.tear_down();
  device_ = nullptr;
  status_ = {.counters = status_.counters};
  sessions_ = {};
  n_evictions_told_ = 0;
}

// Tiled as the backend's kernels want them, in the host's region or through the GPU's sink.
Result<model::Weights> Engine::load_weights(const OpenArgs& args, model::LoadArgs load) {
  load.tile_rows = table_->tile_rows;
  load.workers = &workers_;
  load.on_progress = args.on_progress;
  load.progress_context = args.progress_context;
  const bool has_mark = select_config_.verified[0] != '\0';
  if (plan_.tiers.manifest_bytes > 0 || has_mark) load.hash_with = &crc32c_ways()[0];
  if (!on_gpu()) {
    load.region = region(RegionId::weights);
    return model::load_weights(load);
  }
  return gpu_.load_weights(load);
}

void Engine::place_buffers(const plan::StepMemory& memory) {
  buffers_ = {.x = {memory.x.data(), spec_.d_model},
              .normed = {memory.normed.data(), spec_.d_model},
              .qkv = {memory.qkv.data(), memory.d_qkv},
              .attn_out = {memory.attn_out.data(), memory.d_q},
              .gate = {memory.gate.data(), spec_.d_ff},
              .up = {memory.up.data(), spec_.d_ff}};
}

void Engine::place_sampling(Carver& carver) {
  logit_rows_max_ = plan_.logit_rows_max;
  const auto memory = SamplingMemory::carve(carver, spec_.n_vocab, logit_rows_max_);
  host_logits_ = {memory.logits.data(), spec_.n_vocab};
  scratch_.candidates = memory.candidates;
  scratch_.sorted_window = memory.sorted_window;
  scratch_.saved_logits = memory.saved_logits;
}

void Engine::place_cpu_backend() {
  Carver carver(region(RegionId::activations));
  const auto memory = plan::StepMemory::carve(carver, spec_, plan_.rows_max);
  place_buffers(memory);
  embedded_ = buffers_.x;
  batch_.tokens = memory.tokens.data();
  batch_.slots = batch_.positions = memory.positions.data();
  batch_.visible = memory.visible.data();
  logit_rows_ = memory.logit_rows;
  runs_ = memory.runs;
  kernels::rope_frequencies(spec_.rope_base, spec_.rope_scale, spec_.n_rot, weights_.rope_factors,
                            memory.inv_freq.data());
  Carver attention(region(RegionId::attention));
  Carver sampling(region(RegionId::logits));
  place_sampling(sampling);
  logits_ = host_logits_;
  cpu_backend_.init(
      {.table = table_,
       .workers = &workers_,
       .clock = clock_,
       .spec = &spec_,
       .kv_type = kv_type_,
       .page_tokens = plan_.group_shape.page_tokens,
       .rows_max = plan_.rows_max,
       .inv_freq = memory.inv_freq.data(),
       .act_q = memory.act_q.data(),
       .act_scales = memory.act_scales.data(),
       .act_sums = memory.act_sums.data(),
       .rope_cos = memory.rope_cos.data(),
       .rope_sin = memory.rope_sin.data(),
       .attention = exec::AttentionMemory::carve(attention, spec_, attention_sizes(plan_)),
       .parts = &step_parts_});
}

Result<void> Engine::place_gpu_backend() {
  TARN_CHECK(gpu_.open_indexes());
  place_selector();
  const u32 step_rows = plan::gpu_step_rows(plan_.rows_max);
  Carver carver({gpu_.memory().activations(), plan_.of(RegionId::activations).bytes});
  const auto memory = plan::StepMemory::carve(carver, spec_, step_rows);
  Carver& mirror = gpu_.mirror();
  place_buffers(memory);
  place_sampling(mirror);
  logits_ = {reinterpret_cast<f32*>(gpu_.memory().logits()), spec_.n_vocab};
  batch_.tokens = take<u32>(mirror, step_rows).data();
  batch_.slots = batch_.positions = take<u32>(mirror, step_rows).data();
  batch_.visible = take<u32>(mirror, step_rows).data();
  logit_rows_ = take<u32>(mirror, step_rows);
  runs_ = take<step::Run>(mirror, step_rows);
  embedded_ = {};
  if (weights_.embedding_on_disk()) embedded_ = take_rows(mirror, step_rows, spec_.d_model);
  return gpu_.open_backend({.memory = memory,
                            .rows_max = step_rows,
                            .x = buffers_.x.data,
                            .logits = logits_.data,
                            .host_embedded = embedded_.data,
                            .weights = &weights_});
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
  TARN_CHECK(gpu_.warm_graphs());
  status_.counters = {.load_ns = status_.counters.load_ns};
  trace_ = {};
  return {};
}

// A region is handed out once.
std::span<std::byte> Engine::region_or_registered(RegionId id, GpuPlacement::Registered which) {
  const std::span<std::byte> registered = gpu_.registered(which);
  return registered.empty() ? region(id) : registered;
}

void Engine::place_selector() {
  if (select_config_.is_full()) return;
  selector_.init({.config = &select_config_,
                  .shape = &plan_.select,
                  .caches_shape = {.n_slots = plan_.tiers.cache_slots,
                                   .head_bytes = plan_.tiers.cache_head_bytes,
                                   .bytes = plan_.tiers.cache_bytes,
                                   .extents = plan_.tiers.extents},
                  .spec = &spec_,
                  .table = table_,
                  .workers = &workers_,
                  .clock = clock_,
                  .kv = &kv_,
                  .device = plan_.gpu_select.n_rows > 0 ? &gpu_.indexes() : nullptr,
                  .indexes = region(RegionId::select_index),
                  .caches = region(RegionId::kv_cache),
                  .scratch = region_or_registered(RegionId::select_scratch,
                                                  GpuPlacement::Registered::gathered),
                  .host = this});
  write_policy();
}

Result<void> Engine::place_sessions(const OpenArgs& args) {
  Carver table_carver(region(RegionId::kv_tables));
  const auto tables = plan::KvTables::carve(table_carver, spec_, plan_);
  const bool is_resident = !plan_.tiers.is_on() && !on_gpu();
  const bool is_on_device = !plan_.tiers.is_on() && on_gpu();
  kv_.init({.shape = plan_.group_shape,
            .groups_max = plan_.groups_max,
            .n_cache_layers = spec_.n_cache_layers,
            .pool_tables = tables.pool,
            .groups = is_resident ? region(RegionId::kv_groups) : std::span<std::byte>{},
            .device = is_on_device ? &gpu_.memory() : nullptr});

  TARN_ASSERT(plan_.sessions_max <= kSessionsMax);
  Carver carver(region(RegionId::sessions));
  const auto memory = SessionsMemory::carve(carver, plan_.sessions_max, plan_.context_tokens);
  for (u32 i = 0; i < plan_.sessions_max; ++i) {
    Session& session = memory.construct(i);
    session.sequence.init(
        &kv_.pool(), spec_.n_cache_layers, plan_.context_tokens,
        tables.sequences.subspan(i * tables.sequence_bytes, tables.sequence_bytes));
  }
  sessions_ = memory.sessions;
  if (!plan_.tiers.is_on()) return {};
  return open_tiers(args, io_kind(args.config), tables.tiers);
}

Result<void> Engine::place_text() {
  const u64 piece_bytes = tokenizer_.piece_bytes_max();
  if (piece_bytes > plan::kPieceBytesMax) {
    return fail({.status = Status::unsupported,
                 .hint = "the vocabulary has a token that is too long to be streamed",
                 .figures = {{{"bytes", piece_bytes}, {"limit", plan::kPieceBytesMax}}}});
  }
  scratch_.tokenizer = &tokenizer_;
  text_bytes_max_ = plan_.text_bytes_max;
  Carver carver(region(RegionId::text));
  const auto memory = TextMemory::carve(carver, text_bytes_max_);
  scratch_.piece = memory.piece;
  scratch_.shown = memory.shown;
  encoded_ = memory.encoded;
  encode_scratch_ = memory.encode_scratch;
  return {};
}

Result<std::span<const u32>> Engine::encode(std::string_view text, text::EncodeOptions options) {
  if (text.size() > text_bytes_max_) {
    const bool is_capped = text_bytes_max_ < plan_.context_tokens * plan::kTextBytesATokenMax;
    return fail({.status = Status::invalid_request,
                 .hint = is_capped
                             ? "the text is longer than one call takes (engine.text_bytes_max): "
                               "cut it at line breaks and tokenize the pieces one by one"
                             : "the text is longer than the context could hold: shorten it, "
                               "or raise -c (kv.context_tokens)",
                 .figures = {{{"bytes", text.size()}, {"limit", text_bytes_max_}}}});
  }
  TARN_TRY(const u64 n, tokenizer_.encode(text, options, encode_scratch_, encoded_));
  return std::span<const u32>(encoded_).first(n);
}

std::string_view Engine::piece(u32 token) {
  return {scratch_.piece.data(), tokenizer_.piece(token, /*special=*/true, scratch_.piece)};
}

}  // namespace tarn::engine
