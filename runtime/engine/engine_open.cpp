// How an engine is built: file -> description -> plan -> arena -> weights -> sealed.
#include <array>
#include <new>

#include "platform/base/assert.h"
#include "platform/gpu/device.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/model_file.h"
#include "runtime/engine/take.h"
#include "runtime/plan/gpu_shape.h"

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
  if (kv_stream_.keeps_sessions()) {
    end_publication();
    leave_indexes();
  }
  workers_.stop();
  kv_stream_.close();
  // The thread that closes may be another than the engine's (of an Instance it is not). What a lost
  // device answers here is of no use any more.
  if (device_ != nullptr) (void)device_->bind_thread();
  gpu_.close();
  backend_ = &cpu_backend_;
  selector_.close();
  embedding_.close();
  if (kv_stream_.take_abandoned()) {
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

void Engine::place_buffers(std::byte* step, const plan::StepShape& shape) {
  buffers_ = {.x = {piece_at<f32>(step, shape.x), spec_.d_model},
              .normed = {piece_at<f32>(step, shape.normed), spec_.d_model},
              .qkv = {piece_at<f32>(step, shape.qkv), shape.d_qkv},
              .attn_out = {piece_at<f32>(step, shape.attn_out), shape.d_q},
              .gate = {piece_at<f32>(step, shape.gate), spec_.d_ff},
              .up = {piece_at<f32>(step, shape.up), spec_.d_ff}};
}

void Engine::place_sampling(Bump& bump) {
  logit_rows_max_ = plan_.logit_rows_max;
  host_logits_ = take_rows(bump, logit_rows_max_, spec_.n_vocab);
  scratch_.candidates = take<kernels::Candidate>(bump, spec_.n_vocab);
  scratch_.sorted_window = take<u32>(bump, kPenaltyWindowMax);
  scratch_.saved_logits = take<TokenLogprob>(bump, kSavedLogitsMax);
}

void Engine::place_cpu_backend() {
  const plan::StepShape shape = plan::step_shape(spec_, plan_.rows_max);
  std::byte* step = region(RegionId::activations).data();
  place_buffers(step, shape);
  embedded_ = buffers_.x;
  batch_.tokens = piece_at<u32>(step, shape.tokens);
  batch_.slots = batch_.positions = piece_at<u32>(step, shape.positions);
  batch_.visible = piece_at<u32>(step, shape.visible);
  logit_rows_ = {piece_at<u32>(step, shape.logit_rows), plan_.rows_max};
  runs_ = {piece_at<step::Run>(step, shape.runs), plan_.rows_max};
  kernels::rope_frequencies(spec_.rope_base, spec_.rope_scale, spec_.n_rot, weights_.rope_factors,
                            piece_at<f64>(step, shape.inv_freq));
  std::byte* attention = region(RegionId::attention).data();
  Bump logits_bump(region(RegionId::logits));
  place_sampling(logits_bump);
  logits_ = host_logits_;
  cpu_backend_.init(
      {.table = table_,
       .workers = &workers_,
       .clock = clock_,
       .spec = &spec_,
       .kv_type = kv_type_,
       .page_tokens = plan_.group_shape.page_tokens,
       .rows_max = plan_.rows_max,
       .inv_freq = piece_at<f64>(step, shape.inv_freq),
       .act_q = piece_at<i8>(step, shape.act_q),
       .act_scales = piece_at<f32>(step, shape.act_scales),
       .act_sums = piece_at<i32>(step, shape.act_sums),
       .rope_cos = piece_at<f32>(step, shape.rope_cos),
       .rope_sin = piece_at<f32>(step, shape.rope_sin),
       .attention = attention,
       .attention_stride_bytes = plan_.attention_stride_bytes,
       .page_table_offset_bytes = plan_.page_table_offset_bytes,
       .part_state_offset_bytes = plan_.attention_stride_bytes - plan_.attention_state_bytes,
       .pages_max = plan_.pages_max,
       .parts = &step_parts_,
       .attn_states = plan_.tiers.is_on()
                          ? attention + plan_.n_workers * plan_.attention_stride_bytes
                          : nullptr,
       .attn_state_stride_bytes = plan_.tiers.state_stride_bytes});
}

Result<void> Engine::place_gpu_backend() {
  TARN_CHECK(gpu_.open_indexes());
  place_selector();
  const u32 step_rows = plan::gpu_step_rows(plan_.rows_max);
  const plan::StepShape shape = plan::step_shape(spec_, step_rows);
  std::byte* step = gpu_.memory().activations();
  Bump& mirror = gpu_.mirror();
  place_buffers(step, shape);
  place_sampling(mirror);
  logits_ = {reinterpret_cast<f32*>(gpu_.memory().logits()), spec_.n_vocab};
  batch_.tokens = take<u32>(mirror, step_rows).data();
  batch_.slots = batch_.positions = take<u32>(mirror, step_rows).data();
  batch_.visible = take<u32>(mirror, step_rows).data();
  logit_rows_ = take<u32>(mirror, step_rows);
  runs_ = take<step::Run>(mirror, step_rows);
  embedded_ = {};
  if (weights_.embedding_on_disk()) embedded_ = take_rows(mirror, step_rows, spec_.d_model);
  return gpu_.open_backend({.memory = step,
                            .shape = shape,
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
                  .plan = &plan_,
                  .spec = &spec_,
                  .table = table_,
                  .kv_type = kv_type_,
                  .workers = &workers_,
                  .clock = clock_,
                  .kv_stream = plan_.tiers.is_on() ? &kv_stream_ : nullptr,
                  .device = plan_.gpu_select.n_rows > 0 ? &gpu_.indexes() : nullptr,
                  .indexes = region(RegionId::select_index),
                  .caches = region(RegionId::kv_cache),
                  .scratch = region_or_registered(RegionId::select_scratch,
                                                  GpuPlacement::Registered::gathered),
                  .host = this});
  write_policy();
}

Result<void> Engine::place_sessions(const OpenArgs& args) {
  Bump bump(region(RegionId::kv_tables));
  const auto pool_tables =
      take<std::byte>(bump, kv::GroupPool::bookkeeping_bytes(plan_.groups_max));
  if (plan_.tiers.is_on()) {
    pool_.init(plan_.group_shape, plan_.groups_max, kv_stream_.memory(), pool_tables);
  } else if (on_gpu()) {
    pool_.init(plan_.group_shape, plan_.groups_max, &gpu_.memory(), pool_tables);
  } else {
    pool_.init(plan_.group_shape, plan_.groups_max, region(RegionId::kv_groups), pool_tables);
  }

  TARN_ASSERT(plan_.sessions_max <= kSessionsMax);
  Bump session_bump(region(RegionId::sessions));
  const std::span<Session> raw = take<Session>(session_bump, plan_.sessions_max);
  for (Session& session : raw) {
    new (&session) Session();
    const auto table = take<std::byte>(
        bump, kv::Sequence::bookkeeping_bytes(spec_.n_cache_layers, plan_.context_tokens,
                                              plan_.group_shape.page_tokens));
    session.sequence.init(&pool_, spec_.n_cache_layers, plan_.context_tokens, table);
    session.ids = take<u32>(session_bump, plan_.context_tokens);
    const bool placed = session.generation.events.init(session_bump);
    TARN_ASSERT(placed);
  }
  sessions_ = raw;
  if (!plan_.tiers.is_on()) return {};
  return open_kv_stream(args, take<std::byte>(bump, plan_.tiers.tables_bytes));
}

Result<void> Engine::open_kv_stream(const OpenArgs& args, std::span<std::byte> tables) {
  publish_ns_ = u64{args.config.store.publish_ms} * 1'000'000;
  is_ending_.store(false);
  const reuse::KvIdentity identity = kv_identity();
  TARN_CHECK(kv_stream_.open(
      {.plan = &plan_,
       .n_cache_layers = spec_.n_cache_layers,
       .folder = args.config.store.path.data(),
       .io_kind = io_kind(args.config),
       .io = args.store_io,
       .clock = clock_,
       .log = log_,
       .identity = &identity,
       .host = this,
       .frames = region_or_registered(RegionId::kv_groups, GpuPlacement::Registered::frames),
       .tables = tables,
       .store_memory = region(RegionId::store),
       .extents = selector_.extents_memory()}));
  tell_store();
  tell_lost_records();
  log_.info("kv: %u of %u groups in memory, the rest in %s", plan_.tiers.n_frames, plan_.groups_max,
            args.config.store.path.data());
  return {};
}

Result<void> Engine::place_text() {
  Bump bump(region(RegionId::text));
  const u64 piece_bytes = tokenizer_.piece_bytes_max();
  if (piece_bytes > plan::kPieceBytesMax) {
    return fail({.status = Status::unsupported,
                 .hint = "the vocabulary has a token that is too long to be streamed",
                 .figures = {{{"bytes", piece_bytes}, {"limit", plan::kPieceBytesMax}}}});
  }
  scratch_.tokenizer = &tokenizer_;
  scratch_.piece = take<char>(bump, plan::kShownBytesMax - kStopBytesMax);
  scratch_.shown = take<char>(bump, plan::kShownBytesMax);
  text_bytes_max_ = plan_.text_bytes_max;
  encoded_ = take<u32>(bump, text::Tokenizer::encode_ids_max(text_bytes_max_));
  encode_scratch_ = take<std::byte>(bump, text::Tokenizer::encode_scratch_bytes(text_bytes_max_));
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
