// How an engine is built: file -> description -> plan -> arena -> weights -> sealed.
#include <array>
#include <new>

#include "platform/base/assert.h"
#include "platform/gpu/device.h"
#include "platform/io/private_folder.h"
#include "runtime/control/costs.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/engine_memory.h"
#include "runtime/engine/model_file.h"
#include "runtime/model/kv_type.h"
#include "runtime/reuse/selection_key.h"

namespace tarn::engine {

using plan::RegionId;

// The opening, done once: it ends with READY, or with an error and close().
class Engine::Opening final : private exec::FirstSteps {
 public:
  Opening(Engine& engine, const OpenArgs& args) : e_(engine), args_(args) {}
  Result<void> load();

 private:
  std::span<std::byte> region(RegionId id) { return e_.arena_.region(static_cast<u32>(id)); }
  Result<void> reserve();
  Result<void> load_model();
  Result<void> place_executor();
  void place_selector();
  Result<void> place_kv();
  Result<void> place_sessions();
  void place_archive();
  void place_blends();
  Result<void> place_text();
  Result<void> run() override;

  Engine& e_;
  const OpenArgs& args_;
  exec::HostRegions regions_{};
  std::span<kv::GroupRef> sequences_{};  // of all sessions
  Carver store_{};                       // over its region
  ModelFile file_{};
};

Result<void> Engine::open(const OpenArgs& args) {
  opened_.clock = args.clock;
  opened_.log = args.log;
  current_.open();
  homes_.begin();
  const auto try_once = [&] {
    const Result<void> opened = Opening(*this, args).load();
    if (!opened) close();
    return opened;
  };
  const Result<void> opened = try_once();
  if (opened || !homes_.may_try_again()) return opened;
  opened_.log.info("gpu: its driver does not register the host's memory: its own serves");
  return try_once();
}

void Engine::close() {
  kv_.archive().finish_checkpoint();
  // Records of indexes that manifests name stay on the disk, and nothing else.
  for (Session& s : opened_.sessions) {
    if (opened_.plan.tiers.store.keeps && s.state != SessionState::free)
      kv_.selector().forget(s.idx);
  }
  workers_.stop();
  kv_.cache().close();
  kv_.archive().close();
  executor_.close();
  homes_.close();
  kv_.blends().close();
  kv_.selector().close();
  opened_.model.embedding.close();
  if (kv_.cache().tiers().store.take_abandoned()) {
    opened_.log.error(
        "requests to the store's disk do not end: memory of the engine, and the lock of the "
        "store's file, stay until this process ends");
    arena_.leave();
  }
  arena_.tear_down();
  status_ = {.counters = status_.counters};
  opened_.sessions = {};
}

Result<void> Engine::Opening::load() {
  e_.opened_.select = control::resolved(args_.config.select, args_.config.box);
  e_.opened_.kv_type = model::kv_type(args_.config);
  e_.opened_.selection_key = reuse::selection_key(e_.opened_.select, method::kSelectionId,
                                                  static_cast<u32>(e_.opened_.kv_type));
  TARN_TRY(e_.opened_.table, kernels::cpu_table_select(args_.config.isa.data()));
  TARN_CHECK(file_.open(args_));
  if (file_.io_why_not() != nullptr) e_.opened_.log.info("io: threads (%s)", file_.io_why_not());
  e_.status_.io = file_.io().name();
  const WorkerCpus workers(args_);
  TARN_TRY(const plan::Inputs inputs, plan_inputs(file_, args_, workers.n));
  TARN_TRY(e_.opened_.plan, plan::plan_memory(inputs));
  if (!e_.opened_.plan.fits) return fail(plan::over_budget_error(e_.opened_.plan, inputs));
  e_.opened_.model.spec = file_.description().spec;

  e_.homes_.choose(e_.opened_.plan.has_gpu(), e_.opened_.plan.tiers.n_frames);
  const exec::ArenaUse use =
      e_.homes_.processor().arena_use(args_.reserve, args_.device, inputs.device);
  const LockMode lock = args_.config.lock == LockChoice::require   ? LockMode::require
                        : args_.config.lock == LockChoice::attempt ? LockMode::attempt
                                                                   : LockMode::off;
  TARN_CHECK(e_.arena_.build({.regions = e_.opened_.plan.regions,
                              .reserve = use.reserve,
                              .lock = lock,
                              .huge_pages = args_.config.huge_pages,
                              .for_device = use.for_device}));
  TARN_CHECK(
      e_.workers_.start({.n_workers = workers.n,
                         .cpus = args_.config.pin_threads ? workers.cpus : std::span<const u32>{},
                         .sink = args_.sink}));
  TARN_CHECK(reserve());
  TARN_CHECK(load_model());
  TARN_CHECK(place_executor());
  TARN_CHECK(place_kv());
  TARN_CHECK(place_sessions());
  TARN_CHECK(place_text());
  if (e_.opened_.plan.n_blends > 0) place_blends();
  TARN_CHECK(e_.homes_.processor().warm_up(e_.executor_.capture(), *this));
  e_.arena_.seal();
  e_.note_opened(args_.config);
  if (!e_.opened_.select.is_full()) {
    e_.opened_.log.info("attention: %s (approximate, loss %s)", e_.status_.select,
                        e_.status_.select_verified ? "measured" : "not measured: tarn verify");
  }
  if (args_.config.reuse.verified[0] != '\0') {
    e_.opened_.log.info("chunks: %.0f %% of their tokens are computed anew",
                        100 * static_cast<f64>(e_.status_.blend_share));
  }
  e_.opened_.log.info("ready: %s (%s), %u layers, isa %s, %u workers, %llu bytes reserved",
                      model::arch_name(e_.opened_.model.spec.arch),
                      e_.status_.model_verified ? "file matches model.sha256"
                                                : "file not checked: set model.sha256",
                      e_.opened_.model.spec.n_layers, e_.executor_.isa(), e_.workers_.n_workers(),
                      static_cast<unsigned long long>(e_.opened_.plan.total_bytes));
  return {};
}

Result<void> Engine::Opening::reserve() {
  const std::span<std::byte> arena = e_.arena_.whole();
  regions_ = {.weights = region(RegionId::weights),
              .activations = region(RegionId::activations),
              .attention = region(RegionId::attention),
              .logits = region(RegionId::logits),
              .mirror = region(RegionId::mirror),
              .groups = region(RegionId::kv_groups),
              .gathered = region(RegionId::select_scratch)};
  return e_.homes_.home().reserve({.device = args_.device,
                                   .gpu_kernels = args_.gpu_kernels,
                                   .table = e_.opened_.table,
                                   .workers = &e_.workers_,
                                   .clock = e_.opened_.clock,
                                   .log = e_.opened_.log,
                                   .spec = &e_.opened_.model.spec,
                                   .kv_type = e_.opened_.kv_type,
                                   .parts = &e_.kv_.parts(),
                                   .page_tokens = e_.opened_.plan.group_shape.page_tokens,
                                   .rows_max = e_.opened_.plan.rows_max,
                                   .attention = e_.opened_.plan.attention,
                                   .gpu = e_.opened_.plan.gpu,
                                   .slabs = &e_.opened_.plan.slabs,
                                   .host_bytes = e_.opened_.plan.host_bytes,
                                   .driver_bytes_max = e_.opened_.plan.of(RegionId::driver).bytes,
                                   .groups_max = e_.opened_.plan.groups_max,
                                   .arena = arena,
                                   .regions = regions_},
                                  file_.description());
}

Result<void> Engine::Opening::load_model() {
  const std::span<std::byte> staging = region(RegionId::io_staging);
  TARN_TRY(e_.status_.model_verified, file_.check_sha256(args_, staging, e_.opened_.log));
  const u64 start_ns = e_.opened_.clock->now_ns();
  model::LoadArgs load{.io = &file_.io(),
                       .file = file_.file(),
                       .model = &file_.description(),
                       .staging = staging,
                       .workers = &e_.workers_,
                       .on_progress = args_.on_progress,
                       .progress_context = args_.progress_context};
  const Config& config = args_.config;
  const bool has_mark = config.select.verified[0] != '\0' || config.reuse.verified[0] != '\0';
  if (e_.opened_.plan.tiers.store.keeps || has_mark) load.hash_with = &crc32c_ways()[0];
  TARN_TRY(e_.opened_.model.weights, e_.homes_.processor().load_weights(load));
  e_.status_.counters.load_ns = e_.opened_.clock->now_ns() - start_ns;
  return e_.opened_.model.open_embedding(args_.model_path, io_kind(args_.config), staging);
}

Result<void> Engine::Opening::place_executor() {
  place_selector();
  exec::Processor& processor = e_.homes_.processor();
  const u32 n_vocab = e_.opened_.model.spec.n_vocab;
  const auto memory =
      SamplingMemory::carve(processor.sampling(), n_vocab, e_.opened_.plan.logit_rows_max);
  e_.opened_.scratch.sample = memory.scratch;
  e_.opened_.scratch.sample.exp = e_.opened_.table->exp;
  const step::Rows host_logits{memory.logits.data(), n_vocab};
  TARN_TRY(const exec::StepSetup setup, processor.open(e_.opened_.model.weights, host_logits));
  e_.executor_.open({.logit_rows_max = e_.opened_.plan.logit_rows_max,
                     .model = &e_.opened_.model,
                     .host_logits = host_logits,
                     .setup = setup});
  return {};
}

// Runs a prompt of two tokens and one token more. It leaves nothing: the session is given back, its
// steps are not counted.
Result<void> Engine::Opening::run() {
  constexpr std::array<u32, 2> kPrompt = {0, 0};
  TARN_TRY(const SessionIdx idx, e_.sessions_.create());
  TARN_CHECK(e_.sessions_.feed(idx, kPrompt));
  TARN_CHECK(e_.sessions_.generate(idx, {.max_tokens = 2, .ignore_end = true}));
  while (e_.has_work()) e_.step();
  if (e_.device_lost()) return {};  // the processor tells
  e_.sessions_.destroy(idx);
  e_.status_.counters = {.load_ns = e_.status_.counters.load_ns};
  return {};
}

void Engine::Opening::place_selector() {
  if (e_.opened_.select.is_full()) return;
  e_.kv_.selector().init({.config = &e_.opened_.select,
                          .shape = &e_.opened_.plan.select,
                          .caches_shape = {.n_slots = e_.opened_.plan.tiers.cache_slots,
                                           .head_bytes = e_.opened_.plan.tiers.cache_head_bytes,
                                           .bytes = e_.opened_.plan.tiers.cache_bytes,
                                           .extents = e_.opened_.plan.tiers.extents},
                          .spec = &e_.opened_.model.spec,
                          .table = e_.opened_.table,
                          .workers = &e_.workers_,
                          .clock = e_.opened_.clock,
                          .kv = &e_.kv_.cache(),
                          .device = e_.homes_.home().indexes(),
                          .indexes = region(RegionId::select_index),
                          .caches = region(RegionId::kv_cache),
                          .scratch = regions_.gathered,
                          .host = &e_.current_});
}

Result<void> Engine::Opening::place_kv() {
  const plan::TierShape& tiers = e_.opened_.plan.tiers;
  Carver tables(region(RegionId::kv_tables));
  kv::KvArgs args{.sizes = e_.opened_.plan.kv,
                  .tables = kv::KvTables::carve(tables, e_.opened_.plan.kv)};
  TARN_CHECK(fill_random(args.entropy));
  sequences_ = args.tables.sequences;
  store_ = Carver(region(RegionId::store));
  return e_.homes_.home().open_kv(e_.kv_.cache(), args, store_,
                                  {.pin_set_groups = tiers.pin_set_groups,
                                   .moves_max = plan::kTierMovesMax,
                                   .extents = tiers.extents,
                                   .extents_memory = e_.kv_.selector().extents_memory(),
                                   .store = {.folder = args_.config.store.path.data(),
                                             .file = tiers.store.keeps ? kSessionsFile : kSpillFile,
                                             .io_kind = io_kind(args_.config),
                                             .io_in_flight = plan::kTierIoInFlight,
                                             .io = args_.store_io,
                                             .clock = e_.opened_.clock,
                                             .log = e_.opened_.log,
                                             .limits = tiers.store},
                                   .guest = &e_.kv_.archive(),
                                   .host = &e_.current_});
}

Result<void> Engine::Opening::place_sessions() {
  TARN_ASSERT(e_.opened_.plan.sessions_max <= kSessionsMax);
  Carver carver(region(RegionId::sessions));
  const auto memory =
      SessionsMemory::carve(carver, e_.opened_.plan.sessions_max, e_.opened_.plan.context_tokens);
  for (u32 i = 0; i < e_.opened_.plan.sessions_max; ++i) {
    Session& session = memory.construct(i);
    session.idx = i;
    session.sequence.init(&e_.kv_.cache().pool(), e_.opened_.model.spec.n_cache_layers,
                          e_.opened_.plan.context_tokens,
                          Carver::row(sequences_, e_.opened_.plan.sessions_max, i));
  }
  e_.opened_.sessions = memory.sessions;
  e_.planner_.init(memory.ready, memory.slices);
  e_.admission_.init(
      {.shares = memory.shares, .waiting = memory.waiting, .n_running = memory.n_running});
  TARN_TRY(e_.opened_.identity,
           kv_identity(e_.opened_.model, e_.opened_.plan, static_cast<u32>(e_.opened_.kv_type),
                       e_.homes_.processor().facts().numerics_id));
  if (e_.opened_.plan.tiers.store.keeps) place_archive();
  return {};
}

Result<void> Engine::Opening::place_text() {
  TARN_TRY(const auto tokenizer, text::Tokenizer::build(file_.gguf(), region(RegionId::tokenizer)));
  const u64 piece_bytes = tokenizer.piece_bytes_max();
  if (piece_bytes > plan::kPieceBytesMax) {
    return fail({.status = Status::unsupported,
                 .hint = "the vocabulary has a token that is too long to be streamed",
                 .figures = {{{"bytes", piece_bytes}, {"limit", plan::kPieceBytesMax}}}});
  }
  Carver carver(region(RegionId::text));
  const auto memory = TextMemory::carve(carver, e_.opened_.plan);
  e_.opened_.text.init(tokenizer, {memory.encoded, memory.origins}, memory.encode_scratch);
  Carver chat_carver(region(RegionId::chat));
  const auto chat_memory = chat::ChatMemory::carve(chat_carver, file_.templates().memory_bytes(),
                                                   e_.opened_.plan.render_bytes);
  e_.templates_.parse(file_.templates(), chat_memory, e_.opened_.text.tokenizer());
  for (const bool has_tools : {false, true}) {
    const Result<void> usable = e_.templates_.check(has_tools);
    if (usable) continue;
    Error error = usable.error();
    if (args_.chat_template[0] != '\0') {
      error.status = Status::invalid_config;
      return fail(error);
    }
    std::array<char, 512> why{};
    format_error(error, why.data(), why.size());
    e_.opened_.log.warning("conversations %sare refused: %s", has_tools ? "with tools " : "",
                           why.data());
  }
  e_.opened_.scratch.tokenizer = &e_.opened_.text.tokenizer();
  e_.opened_.scratch.piece = memory.piece;
  e_.opened_.scratch.shown = memory.shown;
  return {};
}

void Engine::Opening::place_blends() {
  const reuse::BlendSizes sizes = e_.opened_.plan.blend_sizes(e_.opened_.model.spec);
  Carver carver(region(RegionId::blend));
  const auto memory = BlendsMemory::carve(carver, e_.opened_.plan, e_.opened_.model.spec);
  reuse::HostChunks& host = e_.kv_.blends().host_chunks();
  host.init({.spec = sizes.spec,
             .page_tokens = sizes.page_tokens,
             .kv = &e_.kv_.cache(),
             .table = e_.opened_.table,
             .workers = &e_.workers_,
             .kv_type = e_.opened_.kv_type,
             .rope_factors = e_.opened_.model.weights.rope_factors,
             .memory = memory.memory.host});
  const u32 n = e_.opened_.plan.n_blends;
  for (u32 i = 0; i < n; ++i) {
    (new (&memory.blends[i]) reuse::Blend())
        ->init({.sizes = sizes,
                .kv = &e_.kv_.cache(),
                .chunks = &e_.homes_.home().chunks(host),
                .bos = e_.opened_.text.tokenizer().first_token(),
                .memory = memory.memory.part(n, i)});
  }
  e_.kv_.blends().init(memory.blends);
  e_.runner_.init();
}

void Engine::Opening::place_archive() {
  e_.kv_.archive().init({.kv = &e_.kv_.cache(),
                         .identity = e_.opened_.identity,
                         .model_name = file_.name(),
                         .crc = &crc32c_ways()[0],
                         .clock = e_.opened_.clock,
                         .log = e_.opened_.log,
                         .checkpoint_ns = u64{args_.config.store.checkpoint_ms} * 1'000'000,
                         .spills_max = plan::kTierMovesMax,
                         .memory = reuse::SaveMemory::carve(store_, e_.opened_.plan.tiers.saves),
                         .selector = &e_.kv_.selector()});
}

}  // namespace tarn::engine
