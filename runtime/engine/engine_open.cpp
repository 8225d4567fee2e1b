// How an engine is built: file -> description -> plan -> arena -> weights -> sealed.
#include <algorithm>
#include <array>
#include <new>

#include "kernels/quant/gpu_tile.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/cpu/topology.h"
#include "platform/gpu/device.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/gpu_support.h"
#include "runtime/engine/take.h"

namespace tarn::engine {
namespace {

using plan::RegionId;

IoKind io_kind(const Config& config) {
  const std::string_view name = config.io.data();
  if (name == "uring") return IoKind::uring;
  return name == "threads" ? IoKind::threads : IoKind::automatic;
}

// What is needed only until the weights are in: the file, its directory, the io backend. One
// reservation whose untouched part costs nothing; given back before READY.
class ModelFile {
 public:
  ModelFile() = default;
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;
  ~ModelFile() {
    if (io_.backend != nullptr) {
      if (file_.index >= 0) io_.backend->close(file_);
      io_backend_destroy(io_.backend);
    }
    if (!memory_.empty()) reserve_->release(memory_);
  }

  Result<void> open(const OpenArgs& args) {
    reserve_ = args.reserve;
    const u64 io_bytes = align_up(io_backend_bytes(), kSectorBytes);
    TARN_TRY(const ReserveOutcome outcome,
             reserve_->reserve({.name = "model directory",
                                .bytes = io_bytes + kDirectoryBytesMax,
                                .touch = false,
                                .huge_pages = false}));
    memory_ = outcome.bytes;
    TARN_TRY(io_, io_backend_create({.kind = io_kind(args.config)}, memory_.first(io_bytes)));
    TARN_TRY(file_, io_.backend->open({.path = args.model_path}));
    bump_ = Bump(memory_.subspan(io_bytes));
    TARN_TRY(gguf_, model::GgufFile::read(*io_.backend, file_, bump_));
    TARN_TRY(description_, model::describe_model(gguf_, bump_));
    description_.spec.embedding_on_disk =
        args.config.embedding == EmbeddingChoice::disk && !description_.spec.tied_output;
    return {};
  }

  // How the file with kept sessions is cut, if there is one.
  Result<store::Cut> store_cut(const OpenArgs& args) {
    if (!args.config.store.sessions) return store::Cut{};
    alignas(kSectorBytes) std::array<std::byte, store::kFramesBegin> sectors;
    const StorePath path(args.config.store.path.data(), /*keeps_sessions=*/true);
    IoBackend& disk = args.store_io != nullptr ? *args.store_io : *io_.backend;
    const auto cut = store::read_cut(disk, crc32c_ways()[0], path.c_str(), sectors);
    // Whether that is worth a refusal, the store's opening decides: it keeps what it cannot see.
    if (!cut && store::is_disk_failure(cut.error())) return store::Cut{};
    return cut;
  }

  IoBackend& io() { return *io_.backend; }
  const char* io_why_not() const { return io_.why_not; }
  IoFile file() const { return file_; }
  const model::GgufFile& gguf() const { return gguf_; }
  const model::ModelDescription& description() const { return description_; }

 private:
  static constexpr u64 kDirectoryBytesMax = 64 * kMiB;

  Reserve* reserve_ = nullptr;
  std::span<std::byte> memory_{};
  IoBackendHandle io_{};
  IoFile file_{};
  Bump bump_{};
  model::GgufFile gguf_{};
  model::ModelDescription description_{};
};

// The CPUs that workers run on: the host's, or those of the process, physical cores first.
struct Workers {
  CpuTopology topology = cpu_topology();
  std::span<const u32> cpus{};
  u32 n = 0;

  explicit Workers(const OpenArgs& args) {
    cpus = args.cpus;
    if (cpus.empty()) cpus = std::span<const u32>(topology.cpus).first(topology.n_cpus);
    const u32 wanted = args.config.n_threads != 0 ? args.config.n_threads
                                                  : std::min<u32>(topology.n_physical_cores,
                                                                  static_cast<u32>(cpus.size()));
    n = std::clamp(wanted, 1u, kWorkersMax);
  }
};

Result<void> check_cpus(std::span<const u32> cpus) {
  for (const u32 cpu : cpus) {
    if (process_may_run_on(cpu)) continue;
    return fail({.status = Status::invalid_config,
                 .hint =
                     "the engine was given a CPU that this process may not run on: give it some "
                     "of those of the process, or none for all of them",
                 .figures = {{{"cpu", cpu}}}});
  }
  return {};
}

constexpr const char* kNoGpuLent =
    "the engine was lent no GPU with its kernels: choose the device \"cpu\" or \"auto\"";

// The GPU that the configuration wants and that has kernels here, or the CPU and on `log` why.
Result<DeviceFacts> wanted_device(const OpenArgs& args) {
  const std::string_view wanted = args.config.device.data();
  const bool has_kernels = args.gpu_kernels != nullptr;
  if (has_kernels && args.device != nullptr && wanted != "cpu") return args.device->facts();
  TARN_TRY(DeviceChoice choice, device_choose(args.config.device.data(), args.config.device_index));
  if (choice.facts.kind != DeviceKind::cpu && !has_kernels) {
    if (wanted == "cuda") return fail({.status = Status::unsupported, .hint = kNoGpuLent});
    TARN_TRY(choice, device_choose("cpu"));
    choice.why_cpu = kNoGpuLent;
  }
  // A build that has a GPU backend was made for a GPU, so its absence is worth a warning.
  if (choice.why_cpu != nullptr && choice.built) {
    args.log.warning("runs on the CPU: %s", choice.why_cpu);
  } else if (choice.why_cpu != nullptr) {
    args.log.info("runs on the CPU: %s", choice.why_cpu);
  }
  return choice.facts;
}

// What a GPU does not compute of this, or does not choose where the plan has KV in its memory.
Result<void> gpu_runs(const plan::Inputs& inputs) {
  TARN_CHECK(gpu_can_run(*inputs.model, *inputs.config));
  const Result<void> can_select = gpu_can_select(inputs.config->select);
  if (can_select) return {};
  const Result<plan::Plan> plan = plan::plan_memory(inputs);
  if (plan && plan->gpu_stream.is_on()) return {};
  return can_select;
}

// Where this model runs. "auto" is whatever works: what the GPU's kernels do not compute, the CPU
// does; "cuda" is refused with the reason.
Result<DeviceFacts> chosen_device(const plan::Inputs& inputs, const OpenArgs& args) {
  const DeviceFacts wanted = inputs.device;
  if (wanted.kind == DeviceKind::cpu) return wanted;
  const Result<void> can_run = gpu_runs(inputs);
  if (can_run) return wanted;
  if (std::string_view(args.config.device.data()) == "cuda") return fail(can_run.error());
  std::array<char, 256> why{};
  format_error(can_run.error(), why.data(), why.size());
  args.log.warning("runs on the CPU: %s", why.data());
  TARN_TRY(const DeviceChoice choice, device_choose("cpu"));
  return choice.facts;
}

Result<plan::Inputs> plan_inputs(ModelFile& file, const OpenArgs& args, u32 n_workers) {
  TARN_CHECK(check_cpus(args.cpus));
  TARN_TRY(const DeviceFacts wanted, wanted_device(args));
  TARN_TRY(const u64 tokenizer_bytes, text::Tokenizer::memory_bytes(file.gguf()));
  TARN_TRY(const store::Cut store_cut, file.store_cut(args));
  plan::Inputs inputs{.model = &file.description(),
                      .config = &args.config,
                      .device = wanted,
                      .tokenizer_bytes = tokenizer_bytes,
                      .n_workers = n_workers,
                      .store_cut = store_cut};
  TARN_TRY(inputs.device, chosen_device(inputs, args));
  return inputs;
}

}  // namespace

Result<PlanReport> plan_model(const OpenArgs& args) {
  ModelFile file;
  TARN_CHECK(file.open(args));
  PlanReport report;
  const Workers workers(args);
  TARN_TRY(const plan::Inputs inputs, plan_inputs(file, args, workers.n));
  TARN_TRY(report.plan, plan::plan_memory(inputs));
  if (!report.plan.fits) report.why_not = plan::over_budget_error(report.plan, inputs);
  return report;
}

Result<void> Engine::open(const OpenArgs& args) {
  reserve_ = args.reserve;
  clock_ = args.clock;
  log_ = args.log;
  device_ = args.device;
  device_lost_.store(false);
  pins_arena_ = registration_refused_ = false;
  Result<void> opened = load(args);
  if (!opened) close();
  if (opened || !registration_refused_) return opened;
  log_.info("gpu: its driver does not register the host's memory: its own serves");
  device_ = args.device;
  pins_arena_ = true;
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
  io_name_ = file.io().name();
  const Workers workers(args);
  TARN_TRY(const plan::Inputs inputs, plan_inputs(file, args, workers.n));
  const bool runs_on_gpu = inputs.device.kind != DeviceKind::cpu;
  if (!runs_on_gpu && args.gpu_kernels != nullptr) device_ = nullptr;  // it is not asked any more
  TARN_TRY(plan_, plan::plan_memory(inputs));
  if (!plan_.fits) return fail(plan::over_budget_error(plan_, inputs));
  spec_ = file.description().spec;

  pinned_reserve_.init(device_);
  pins_arena_ = runs_on_gpu && (pins_arena_ || !inputs.device.host_register);
  const LockMode lock = args.config.lock == LockChoice::require   ? LockMode::require
                        : args.config.lock == LockChoice::attempt ? LockMode::attempt
                                                                  : LockMode::off;
  TARN_CHECK(arena_.build({.regions = plan_.regions,
                           .reserve = pins_arena_ ? &pinned_reserve_ : reserve_,
                           .lock = lock,
                           .huge_pages = args.config.huge_pages,
                           .for_device = runs_on_gpu}));
  TARN_CHECK(
      workers_.start({.n_workers = workers.n,
                      .cpus = args.config.pin_threads ? workers.cpus : std::span<const u32>{},
                      .sink = args.sink}));
  if (runs_on_gpu) TARN_CHECK(open_gpu(args, file.description()));
  const u64 start_ns = clock_->now_ns();
  const std::span<std::byte> staging = region(RegionId::io_staging);
  TARN_TRY(weights_, load_weights(args, {.io = &file.io(),
                                         .file = file.file(),
                                         .model = &file.description(),
                                         .staging = staging}));
  counters_.load_ns = clock_->now_ns() - start_ns;
  if (weights_.embedding_on_disk()) {  // the loader is done with its memory
    TARN_CHECK(embedding_.open({.path = args.model_path,
                                .io_kind = io_kind(args.config),
                                .table = weights_.token_embd_on_disk,
                                .memory = staging}));
  }
  TARN_TRY(tokenizer_, text::Tokenizer::build(file.gguf(), region(RegionId::tokenizer)));
  if (on_gpu()) {
    TARN_CHECK(place_gpu_backend(args));
  } else {
    place_selector();
    place_cpu_backend();
  }
  TARN_CHECK(place_sessions(args));
  TARN_CHECK(place_text());
  if (on_gpu()) {
    TARN_CHECK(capture_graphs());
    TARN_CHECK(warm_up());
    TARN_CHECK(check_driver_bytes());
  }
  arena_.seal();
  log_.info("ready: %s, %u layers, isa %s, %u workers, %llu bytes reserved",
            model::arch_name(spec_.arch), spec_.n_layers, isa(), workers_.n_workers(),
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
  gpu_backend_.close();
  gpu_indexes_.close();
  for (const std::span<std::byte> bytes : registered_) {
    if (!bytes.empty() && !pins_arena_) device_->unregister_host(bytes);
  }
  registered_ = {};
  gpu_memory_.release();
  memory_probe_ = {};
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
  sessions_ = {};
  n_session_slots_ = 0;
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
  load.tile_rows = &kernels::gpu_repack_rows;
  load.region = take<std::byte>(mirror_, model::weights_host_bytes(spec_));
  load.sink = &gpu_memory_;
  TARN_CHECK(gpu_memory_.open_staging(load.staging, pins_arena_, *clock_));
  const Result<model::Weights> loaded = model::load_weights(load);
  gpu_memory_.close_staging();
  return loaded;
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
  candidates_ = take<kernels::Candidate>(bump, spec_.n_vocab);
  sorted_window_ = take<u32>(bump, kPenaltyWindowMax);
  saved_logits_ = take<TokenLogprob>(bump, kSavedLogitsMax);
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
       .selector = &selector_,
       .kv_stream = plan_.tiers.is_on() ? &kv_stream_ : nullptr,
       .attn_states = attention + plan_.n_workers * plan_.attention_stride_bytes,
       .attn_state_stride_bytes = plan_.tiers.state_stride_bytes});
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
                  .device = plan_.gpu_select.n_rows > 0 ? &gpu_indexes_ : nullptr,
                  .indexes = region(RegionId::select_index),
                  .caches = region(RegionId::kv_cache),
                  .scratch = region_or_registered(RegionId::select_scratch, Registered::gathered),
                  .is_wanted = &Engine::is_index_wanted,
                  .context = this});
  write_policy();
  log_.info("select: %s, verified: %s", select_name(), select_verified() ? "true" : "false");
}

Result<void> Engine::place_sessions(const OpenArgs& args) {
  Bump bump(region(RegionId::kv_tables));
  const auto pool_tables =
      take<std::byte>(bump, kv::GroupPool::bookkeeping_bytes(plan_.groups_max));
  if (plan_.tiers.is_on()) {
    pool_.init(plan_.group_shape, plan_.groups_max, kv_stream_.memory(), pool_tables);
  } else if (on_gpu()) {
    pool_.init(plan_.group_shape, plan_.groups_max, &gpu_memory_, pool_tables);
  } else {
    pool_.init(plan_.group_shape, plan_.groups_max, region(RegionId::kv_groups), pool_tables);
  }

  n_session_slots_ = plan_.sessions_max;
  TARN_ASSERT(n_session_slots_ <= kSessionsMax);
  Bump session_bump(region(RegionId::sessions));
  const std::span<Session> raw = take<Session>(session_bump, n_session_slots_);
  for (Session& session : raw) {
    new (&session) Session();
    const auto table = take<std::byte>(
        bump, kv::Sequence::bookkeeping_bytes(spec_.n_cache_layers, plan_.context_tokens,
                                              plan_.group_shape.page_tokens));
    session.sequence.init(&pool_, spec_.n_cache_layers, plan_.context_tokens, table);
    session.ids = take<u32>(session_bump, plan_.context_tokens);
    const bool placed = session.events.init(session_bump);
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
  TARN_CHECK(
      kv_stream_.open({.plan = &plan_,
                       .n_cache_layers = spec_.n_cache_layers,
                       .folder = args.config.store.path.data(),
                       .io_kind = io_kind(args.config),
                       .io = args.store_io,
                       .clock = clock_,
                       .log = log_,
                       .identity = &identity,
                       .on_wait = &Engine::on_disk_wait,
                       .wait_context = this,
                       .frames = region_or_registered(RegionId::kv_groups, Registered::frames),
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
  piece_ = take<char>(bump, plan::kShownBytesMax - kStopBytesMax);
  shown_ = take<char>(bump, plan::kShownBytesMax);
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
  return {piece_.data(), tokenizer_.piece(token, /*special=*/true, piece_)};
}

}  // namespace tarn::engine
