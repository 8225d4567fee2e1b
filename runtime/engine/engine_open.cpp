// How an engine is built: file -> description -> plan -> arena -> weights -> sealed.
#include <array>
#include <new>

#include "platform/base/assert.h"
#include "platform/gpu/device.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/engine_memory.h"
#include "runtime/engine/model_file.h"
#include "runtime/engine/take.h"
#include "runtime/method/select_shape.h"
#include "runtime/plan/kv_type.h"
#include "runtime/reuse/selection_key.h"

namespace tarn::engine {

using plan::RegionId;

Result<void> Engine::open(const OpenArgs& args) {
  clock_ = args.clock;
  log_ = args.log;
  device_ = args.device;
  device_lost_.store(false);
  executor_.gpu().pin_arena(false);
  Result<void> opened = load(args);
  if (!opened) close();
  if (opened || !executor_.gpu().registration_refused()) return opened;
  log_.info("gpu: its driver does not register the host's memory: its own serves");
  device_ = args.device;
  executor_.gpu().pin_arena(true);
  opened = load(args);
  if (!opened) close();
  return opened;
}

Result<void> Engine::load(const OpenArgs& args) {
  select_config_ = args.config.select;
  kv_type_ = plan::kv_type(args.config);
  selection_key_ =
      reuse::selection_key(select_config_, method::kSelectionId, static_cast<u32>(kv_type_));
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
  model_.spec = file.description().spec;

  executor_.gpu().pin_arena(runs_on_gpu &&
                            (executor_.gpu().pins_arena() || !inputs.device.host_register));
  const LockMode lock = args.config.lock == LockChoice::require   ? LockMode::require
                        : args.config.lock == LockChoice::attempt ? LockMode::attempt
                                                                  : LockMode::off;
  TARN_CHECK(arena_.build({.regions = plan_.regions,
                           .reserve = executor_.gpu().pins_arena()
                                          ? executor_.gpu().pinned_reserve(device_)
                                          : args.reserve,
                           .lock = lock,
                           .huge_pages = args.config.huge_pages,
                           .for_device = runs_on_gpu}));
  TARN_CHECK(
      workers_.start({.n_workers = workers.n,
                      .cpus = args.config.pin_threads ? workers.cpus : std::span<const u32>{},
                      .sink = args.sink}));
  if (runs_on_gpu) {
    TARN_CHECK(executor_.gpu().reserve({.device = device_,
                                        .clock = clock_,
                                        .log = log_,
                                        .plan = &plan_,
                                        .spec = &model_.spec,
                                        .select = &select_config_,
                                        .kv_type = kv_type_,
                                        .arena = &arena_,
                                        .parts = &selector_.parts(),
                                        .workers = &workers_,
                                        .kernels = args.gpu_kernels},
                                       file.description()));
  }
  TARN_CHECK(load_model(args, file));
  TARN_CHECK(place_executor());
  TARN_CHECK(place_sessions(args));
  TARN_CHECK(place_text(file));
  if (runs_on_gpu) {
    TARN_CHECK(executor_.capture_graphs());
    TARN_CHECK(warm_up());
    TARN_CHECK(executor_.gpu().check_driver_bytes());
  }
  arena_.seal();
  note_opened();
  if (!select_config_.is_full()) {
    log_.info("select: %s, verified: %s", status_.select,
              status_.select_verified ? "true" : "false");
  }
  log_.info("ready: %s, %u layers, isa %s, %u workers, %llu bytes reserved",
            model::arch_name(model_.spec.arch), model_.spec.n_layers, executor_.isa(),
            workers_.n_workers(), static_cast<unsigned long long>(plan_.total_bytes));
  return {};
}

void Engine::close() {
  if (archive_.is_on()) {
    archive_.finish_checkpoint();
    // What manifests name of indexes stays on the disk, and nothing else.
    for (Session& s : sessions_) {
      if (s.state != SessionState::free) selector_.forget(idx_of(s));
    }
  }
  workers_.stop();
  kv_.close();
  archive_.close();
  // The thread that closes may be another than the engine's (of an Instance it is not). What a lost
  // device answers here is of no use any more.
  if (device_ != nullptr) (void)device_->bind_thread();
  executor_.close();
  selector_.close();
  model_.embedding.close();
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
}

// Tiled as the backend's kernels want them, in the host's region or through the GPU's sink.
Result<void> Engine::load_model(const OpenArgs& args, ModelFile& file) {
  const u64 start_ns = clock_->now_ns();
  const std::span<std::byte> staging = region(RegionId::io_staging);
  model::LoadArgs load{.io = &file.io(),
                       .file = file.file(),
                       .model = &file.description(),
                       .staging = staging,
                       .tile_rows = table_->tile_rows,
                       .workers = &workers_,
                       .on_progress = args.on_progress,
                       .progress_context = args.progress_context};
  const bool has_mark = select_config_.verified[0] != '\0';
  if (plan_.tiers.store.keeps || has_mark) load.hash_with = &crc32c_ways()[0];
  if (executor_.gpu().is_reserved()) {
    TARN_TRY(model_.weights, executor_.gpu().load_weights(load));
  } else {
    load.region = region(RegionId::weights);
    TARN_TRY(model_.weights, model::load_weights(load));
  }
  status_.counters.load_ns = clock_->now_ns() - start_ns;
  return model_.open_embedding(args.model_path, io_kind(args.config), staging);
}

Result<void> Engine::place_executor() {
  exec::GpuPlacement& gpu = executor_.gpu();
  const bool on_gpu = gpu.is_reserved();
  if (on_gpu) TARN_CHECK(gpu.open_indexes());
  place_selector();
  Carver carver(on_gpu ? std::span<std::byte>{} : region(RegionId::logits));
  const auto memory = SamplingMemory::carve(on_gpu ? gpu.mirror() : carver, model_.spec.n_vocab,
                                            plan_.logit_rows_max);
  scratch_.candidates = memory.candidates;
  scratch_.sorted_window = memory.sorted_window;
  scratch_.saved_logits = memory.saved_logits;
  exec::ExecutorArgs args{.on_gpu = on_gpu,
                          .plan = &plan_,
                          .model = &model_,
                          .table = table_,
                          .kv_type = kv_type_,
                          .workers = &workers_,
                          .clock = clock_,
                          .parts = &selector_.parts(),
                          .host_logits = {memory.logits.data(), model_.spec.n_vocab}};
  if (!on_gpu) {
    args.activations = region(RegionId::activations);
    Carver attention(region(RegionId::attention));
    args.attention = exec::AttentionMemory::carve(attention, model_.spec, attention_sizes(plan_));
    args.watched = device_;
  }
  return executor_.open(args);
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
  TARN_CHECK(executor_.gpu().warm_graphs());
  status_.counters = {.load_ns = status_.counters.load_ns};
  trace_ = {};
  return {};
}

// A region is handed out once.
std::span<std::byte> Engine::region_or_registered(RegionId id,
                                                  exec::GpuPlacement::Registered which) {
  const std::span<std::byte> registered = executor_.gpu().registered(which);
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
                  .spec = &model_.spec,
                  .table = table_,
                  .workers = &workers_,
                  .clock = clock_,
                  .kv = &kv_,
                  .device = plan_.gpu_select.n_rows > 0 ? &executor_.gpu().indexes() : nullptr,
                  .indexes = region(RegionId::select_index),
                  .caches = region(RegionId::kv_cache),
                  .scratch = region_or_registered(RegionId::select_scratch,
                                                  exec::GpuPlacement::Registered::gathered),
                  .host = this});
}

Result<void> Engine::place_sessions(const OpenArgs& args) {
  Carver table_carver(region(RegionId::kv_tables));
  const auto tables = kv::KvTables::carve(table_carver, plan_.kv);
  const bool is_resident = !plan_.tiers.is_on() && !executor_.on_gpu();
  const bool is_on_device = !plan_.tiers.is_on() && executor_.on_gpu();
  kv_.init({.sizes = plan_.kv,
            .tables = tables,
            .groups = is_resident ? region(RegionId::kv_groups) : std::span<std::byte>{},
            .device = is_on_device ? &executor_.gpu().memory() : nullptr});

  TARN_ASSERT(plan_.sessions_max <= kSessionsMax);
  Carver carver(region(RegionId::sessions));
  const auto memory = SessionsMemory::carve(carver, plan_.sessions_max, plan_.context_tokens);
  for (u32 i = 0; i < plan_.sessions_max; ++i) {
    Session& session = memory.construct(i);
    session.sequence.init(&kv_.pool(), model_.spec.n_cache_layers, plan_.context_tokens,
                          Carver::row(tables.sequences, plan_.sessions_max, i));
  }
  sessions_ = memory.sessions;
  ready_ = memory.ready;
  schedule_ = {.slices = memory.slices};
  if (!plan_.tiers.is_on()) return {};
  return open_tiers(args, io_kind(args.config));
}

Result<void> Engine::place_text(const ModelFile& file) {
  TARN_TRY(const auto tokenizer, text::Tokenizer::build(file.gguf(), region(RegionId::tokenizer)));
  const u64 piece_bytes = tokenizer.piece_bytes_max();
  if (piece_bytes > plan::kPieceBytesMax) {
    return fail({.status = Status::unsupported,
                 .hint = "the vocabulary has a token that is too long to be streamed",
                 .figures = {{{"bytes", piece_bytes}, {"limit", plan::kPieceBytesMax}}}});
  }
  Carver carver(region(RegionId::text));
  const auto memory = TextMemory::carve(carver, plan_.text_bytes_max);
  const u64 context_bytes = plan_.context_tokens * plan::kTextBytesATokenMax;
  text_.init(tokenizer, {.piece = memory.piece,
                         .ids = memory.encoded,
                         .scratch = memory.encode_scratch,
                         .text_bytes_max = plan_.text_bytes_max,
                         .is_capped = plan_.text_bytes_max < context_bytes});
  scratch_.tokenizer = &text_.tokenizer();
  scratch_.piece = memory.piece;
  scratch_.shown = memory.shown;
  return {};
}

}  // namespace tarn::engine
