// How an engine is built: file -> description -> plan -> arena -> weights -> sealed.
#include <algorithm>
#include <new>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/cpu/topology.h"
#include "platform/gpu/device.h"
#include "runtime/engine/engine.h"

namespace tarn::engine {
namespace {

using plan::RegionId;

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
    return {};
  }

  IoBackend& io() { return *io_.backend; }
  const char* io_why_not() const { return io_.why_not; }
  IoFile file() const { return file_; }
  const model::GgufFile& gguf() const { return gguf_; }
  const model::ModelDescription& description() const { return description_; }

 private:
  static constexpr u64 kDirectoryBytesMax = 64 * kMiB;

  static IoKind io_kind(const Config& config) {
    const std::string_view name = config.io.data();
    if (name == "uring") return IoKind::uring;
    return name == "threads" ? IoKind::threads : IoKind::automatic;
  }

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

constexpr const char* kNoGpuOps =
    "this version runs models on the CPU: its engine does not use the GPU's kernels yet; choose "
    "the device \"cpu\" or \"auto\"";

// Where the model runs, and on `log` why not on a GPU.
Result<DeviceFacts> chosen_device(const OpenArgs& args) {
  const std::string_view wanted = args.config.device.data();
  TARN_TRY(DeviceChoice choice, device_choose(args.config.device.data()));
  if (choice.facts.kind != DeviceKind::cpu) {
    if (wanted == "cuda") return fail({.status = Status::unsupported, .hint = kNoGpuOps});
    TARN_TRY(choice, device_choose("cpu"));
    choice.why_cpu = kNoGpuOps;
  }
  // A build that has a GPU backend was made for a GPU, so its absence is worth a warning.
  if (choice.why_cpu != nullptr && choice.built) {
    args.log.warning("runs on the CPU: %s", choice.why_cpu);
  } else if (choice.why_cpu != nullptr) {
    args.log.info("runs on the CPU: %s", choice.why_cpu);
  }
  return choice.facts;
}

Result<plan::Inputs> plan_inputs(const ModelFile& file, const OpenArgs& args, u32 n_workers) {
  TARN_TRY(const DeviceFacts device, chosen_device(args));
  TARN_TRY(const u64 tokenizer_bytes, text::Tokenizer::memory_bytes(file.gguf()));
  return plan::Inputs{.model = &file.description(),
                      .config = &args.config,
                      .device = device,
                      .tokenizer_bytes = tokenizer_bytes,
                      .n_workers = n_workers};
}

// A piece of a region whose size the plan worked out: if it does not fit, the plan is wrong.
template <class T>
std::span<T> take(Bump& bump, u64 n) {
  const auto bytes = bump.alloc_bytes(n * sizeof(T), 64);
  TARN_ASSERT(bytes.has_value());
  return {reinterpret_cast<T*>(bytes->data()), n};
}

// A piece of the step's region, where the planner put it.
template <class T>
T* piece_at(std::span<std::byte> step, const plan::Piece& piece) {
  return reinterpret_cast<T*>(step.data() + piece.offset_bytes);
}

Rows take_rows(Bump& bump, u64 n_rows, u64 stride) {
  return {take<f32>(bump, n_rows * stride).data(), stride};
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
  Result<void> opened = load(args);
  if (!opened) close();
  return opened;
}

Result<void> Engine::load(const OpenArgs& args) {
  if (device_ != nullptr) TARN_CHECK(device_->bind_thread());
  TARN_TRY(table_, kernels::cpu_table_select(args.config.isa.data()));
  ModelFile file;
  TARN_CHECK(file.open(args));
  if (file.io_why_not() != nullptr) log_.info("io: threads (%s)", file.io_why_not());
  io_name_ = file.io().name();
  const Workers workers(args);
  TARN_TRY(const plan::Inputs inputs, plan_inputs(file, args, workers.n));
  TARN_TRY(plan_, plan::plan_memory(inputs));
  if (!plan_.fits) return fail(plan::over_budget_error(plan_, inputs));
  spec_ = file.description().spec;

  const LockMode lock = args.config.lock == LockChoice::require   ? LockMode::require
                        : args.config.lock == LockChoice::attempt ? LockMode::attempt
                                                                  : LockMode::off;
  TARN_CHECK(arena_.build({.regions = plan_.regions,
                           .reserve = reserve_,
                           .lock = lock,
                           .huge_pages = args.config.huge_pages}));
  TARN_CHECK(
      workers_.start({.n_workers = workers.n,
                      .cpus = args.config.pin_threads ? workers.cpus : std::span<const u32>{},
                      .sink = args.sink}));
  const u64 start_ns = clock_->now_ns();
  TARN_TRY(weights_, model::load_weights({.io = &file.io(),
                                          .file = file.file(),
                                          .model = &file.description(),
                                          .region = region(RegionId::weights),
                                          .staging = region(RegionId::io_staging),
                                          .tile_rows = table_->tile_rows,
                                          .workers = &workers_,
                                          .on_progress = args.on_progress,
                                          .progress_context = args.progress_context}));
  counters_.load_ns = clock_->now_ns() - start_ns;
  TARN_TRY(tokenizer_, text::Tokenizer::build(file.gguf(), region(RegionId::tokenizer)));
  place_step_buffers();
  place_selector(args);
  place_backend(args);
  place_sessions();
  TARN_CHECK(place_text());
  arena_.seal();
  log_.info("ready: %s, %u layers, isa %s, %u workers, %llu bytes reserved",
            model::arch_name(spec_.arch), spec_.n_layers, table_->isa, workers_.n_workers(),
            static_cast<unsigned long long>(plan_.total_bytes));
  return {};
}

void Engine::close() {
  workers_.stop();
  arena_.tear_down();
  device_ = nullptr;
  sessions_ = {};
  n_session_slots_ = 0;
}

void Engine::place_step_buffers() {
  const plan::StepShape shape = plan::step_shape(spec_, plan_.rows_max);
  const std::span<std::byte> step = region(RegionId::activations);
  buffers_ = {.x = {piece_at<f32>(step, shape.x), spec_.d_model},
              .normed = {piece_at<f32>(step, shape.normed), spec_.d_model},
              .qkv = {piece_at<f32>(step, shape.qkv), shape.d_qkv},
              .attn_out = {piece_at<f32>(step, shape.attn_out), shape.d_q},
              .gate = {piece_at<f32>(step, shape.gate), spec_.d_ff},
              .up = {piece_at<f32>(step, shape.up), spec_.d_ff}};
  step_state_.tokens = piece_at<u32>(step, shape.tokens);
  step_state_.positions = piece_at<u32>(step, shape.positions);
  step_state_.visible = piece_at<u32>(step, shape.visible);
  wanted_ = {piece_at<u32>(step, shape.wanted), plan_.rows_max};
  static_assert(sizeof(RowRun) <= plan::kStepRunBytes);
  runs_ = {piece_at<RowRun>(step, shape.runs), plan_.rows_max};
  backend_args_.act_q = piece_at<i8>(step, shape.act_q);
  backend_args_.act_scales = piece_at<f32>(step, shape.act_scales);
  backend_args_.act_sums = piece_at<i32>(step, shape.act_sums);
  backend_args_.rope_cos = piece_at<f32>(step, shape.rope_cos);
  backend_args_.rope_sin = piece_at<f32>(step, shape.rope_sin);
  backend_args_.inv_freq = piece_at<f64>(step, shape.inv_freq);
  kernels::rope_frequencies(spec_.rope_base, spec_.rope_scale, spec_.n_rot, weights_.rope_factors,
                            piece_at<f64>(step, shape.inv_freq));

  Bump logits_bump(region(RegionId::logits));
  logit_rows_max_ = plan_.logit_rows_max;
  logits_ = take_rows(logits_bump, logit_rows_max_, spec_.n_vocab);
  candidates_ = take<kernels::Candidate>(logits_bump, spec_.n_vocab);
  sorted_window_ = take<u32>(logits_bump, kPenaltyWindowMax);
  saved_logits_ = take<TokenLogprob>(logits_bump, kSavedLogitsMax);
}

void Engine::place_selector(const OpenArgs& args) {
  select_config_ = args.config.select;
  if (select_config_.is_full()) return;
  selector_.init({.config = &select_config_,
                  .plan = &plan_,
                  .spec = &spec_,
                  .table = table_,
                  .kv_type = args.config.kv_type == KvTypeChoice::q8_0 ? kernels::KvType::q8_0
                                                                       : kernels::KvType::f16,
                  .workers = &workers_,
                  .clock = clock_,
                  .indexes = region(RegionId::select_index),
                  .scratch = region(RegionId::select_scratch)});
  log_.info("select: %s, verified: false", select_name());
}

void Engine::place_backend(const OpenArgs& args) {
  const std::span<std::byte> attention = region(RegionId::attention);
  backend_args_.table = table_;
  backend_args_.workers = &workers_;
  backend_args_.spec = &spec_;
  backend_args_.kv_type =
      args.config.kv_type == KvTypeChoice::q8_0 ? kernels::KvType::q8_0 : kernels::KvType::f16;
  backend_args_.page_tokens = plan_.group_shape.page_tokens;
  backend_args_.rows_max = plan_.rows_max;
  backend_args_.attention = attention.data();
  backend_args_.attention_stride_bytes = plan_.attention_stride_bytes;
  backend_args_.page_table_offset_bytes = plan_.page_table_offset_bytes;
  backend_args_.pages_max = plan_.pages_max;
  backend_args_.selector = &selector_;
  backend_.init(backend_args_);
}

void Engine::place_sessions() {
  Bump bump(region(RegionId::kv_tables));
  const auto pool_tables =
      take<std::byte>(bump, kv::GroupPool::bookkeeping_bytes(plan_.groups_max));
  pool_.init(plan_.group_shape, plan_.groups_max, region(RegionId::kv_groups), pool_tables);

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
    const bool is_capped = text_bytes_max_ == plan::kTextBytesMax;
    return fail({.status = Status::invalid_request,
                 .hint = is_capped
                             ? "the text is longer than one call takes: cut it at line breaks "
                               "and tokenize the pieces one by one"
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
