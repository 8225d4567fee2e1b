// The C border: every function checks what it is given, hands the work to the engine's thread and
// turns a Result into a status and a sentence. Nothing here may throw: the core is built without
// exceptions.
#include "runtime/api/tarn.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

#include "runtime/api/call.h"

using tarn::Error;
using tarn::Result;
using tarn::Status;
using tarn::u32;
using tarn::u64;
using tarn::api::EngineCall;
using tarn::api::SessionCall;
using tarn::engine::Engine;
using tarn::engine::Instance;
using tarn::engine::SessionIdx;
using tarn::engine::SessionState;

namespace {

thread_local char t_error_text[512] = "";

int32_t report(const Error& error) {
  tarn::format_error(error, t_error_text, sizeof t_error_text);
  return static_cast<int32_t>(error.status);
}

int32_t report(const Result<void>& result) { return result ? TARN_OK : report(result.error()); }

int32_t refuse(const char* hint) {
  return report(Error{.status = Status::invalid_request, .hint = hint});
}

constexpr const char* kBadStruct =
    "an options struct is NULL or has no struct_size: initialise it with TARN_INIT(type)";
constexpr const char* kLaterStruct =
    "an options struct sets a field that this libtarn does not know: leave the field zero, or link "
    "a newer libtarn";
constexpr uint32_t kStructBytesMax = 4096;  // of any version's

// Copies what the caller's version of a struct has; fields it does not know stay zero. Returns why
// it cannot, or nullptr.
template <class T>
const char* copy_in(const T* from, T* to) {
  static_assert(sizeof(T) <= kStructBytesMax);
  if (from == nullptr || from->struct_size < sizeof(from->struct_size) ||
      from->struct_size > kStructBytesMax) {
    return kBadStruct;
  }
  const auto* bytes = reinterpret_cast<const char*>(from);
  const auto is_set = [](char byte) { return byte != 0; };
  if (from->struct_size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + from->struct_size, is_set)) {
    return kLaterStruct;
  }
  *to = T{};
  std::memcpy(to, from, std::min<size_t>(from->struct_size, sizeof(T)));
  return nullptr;
}

template <class T>
bool copy_out(const T& from, T* to) {
  if (to == nullptr || to->struct_size < sizeof(to->struct_size)) return false;
  const uint32_t struct_size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(struct_size, sizeof(T)));
  to->struct_size = struct_size;
  return true;
}

template <size_t n>
void copy_text(char (&to)[n], const char* from) {
  const size_t length = std::min(std::strlen(from), n - 1);
  std::memcpy(to, from, length);
  std::memset(to + length, 0, n - length);
}

void describe_plan(const tarn::plan::Plan& plan, tarn_plan* out) {
  out->fits = plan.fits ? 1 : 0;
  out->total_bytes = plan.total_bytes;
  out->budget_bytes = plan.budget_bytes;
  out->context_tokens = plan.context_tokens;
  out->n_regions = 0;
  for (const tarn::Region& region : plan.regions) {
    tarn_region& to = out->regions[out->n_regions++];
    copy_text(to.name, region.name);
    copy_text(to.space, tarn::region_space_name(region.space));
    copy_text(to.kind, tarn::region_kind_name(region.kind));
    to.bytes = region.bytes;
    copy_text(to.formula, region.formula.data());
  }
}

tarn::engine::InstanceArgs instance_args(const tarn_options& options) {
  return {.model_path = options.model_path,
          .config_toml = options.config_toml,
          .budget_bytes = options.budget_bytes,
          .hooks = {.on_log = options.log,
                    .log_context = options.log_context,
                    .log_least = static_cast<tarn::LogLevel>(std::clamp(options.log_level, 0, 3)),
                    .fatal = options.fatal,
                    .fatal_context = options.fatal_context,
                    .progress = options.progress,
                    .progress_context = options.progress_context},
          .cpus = {options.cpus, options.cpus != nullptr ? options.n_cpus : 0}};
}

constexpr uint32_t kTextFlags = TARN_ADD_SPECIAL | TARN_PARSE_SPECIAL;
constexpr const char* kBadFlags =
    "flags has a bit that this libtarn does not know: pass TARN_ADD_SPECIAL, TARN_PARSE_SPECIAL, "
    "both or 0";

tarn::text::EncodeOptions encode_options(uint32_t flags) {
  return {.add_special = (flags & TARN_ADD_SPECIAL) != 0,
          .parse_special = (flags & TARN_PARSE_SPECIAL) != 0};
}

tarn::engine::SamplerParams sampler_params(const tarn_generate_options& options) {
  tarn::engine::SamplerParams params;
  params.temperature = options.temperature;
  params.top_k = options.top_k;
  if (options.top_p != 0.0f && options.top_p < 1.0f) params.top_p = options.top_p;
  params.min_p = options.min_p;
  if (options.repetition_penalty != 0.0f) params.repetition_penalty = options.repetition_penalty;
  params.frequency_penalty = options.frequency_penalty;
  params.presence_penalty = options.presence_penalty;
  if (options.penalty_last_tokens != 0) params.penalty_last_tokens = options.penalty_last_tokens;
  params.seed = options.seed;
  params.n_top_logprobs = options.n_top_logprobs;
  params.wants_logprob = options.no_logprobs == 0;
  params.n_logit_biases = options.n_logit_biases;
  const u32 n = std::min(options.n_logit_biases, tarn::engine::kLogitBiasesMax);
  for (u32 i = 0; i < n; ++i) {
    params.logit_biases[i] = {options.logit_biases[i].token, options.logit_biases[i].bias};
  }
  return params;
}

constexpr const char* kNoName = "name is NULL: a kept session has one";
constexpr const char* kNoPath = "path is NULL: an exported session is a file";

}  // namespace

extern "C" {

const char* tarn_error_text(void) { return t_error_text; }

const char* tarn_status_name(int32_t status) {
  return tarn::status_name(static_cast<Status>(status));
}

const char* tarn_finish_name(int32_t finish) {
  return tarn::engine::finish_name(static_cast<tarn::engine::Finish>(finish));
}

int32_t tarn_open(const tarn_options* options, tarn_engine** engine_out) {
  if (engine_out == nullptr) return refuse("engine_out is NULL");
  *engine_out = nullptr;
  tarn_options own;
  if (const char* why_not = copy_in(options, &own)) return refuse(why_not);
  Result<Instance*> instance = Instance::open(instance_args(own));
  if (!instance) return report(instance.error());
  *engine_out = reinterpret_cast<tarn_engine*>(*instance);
  return TARN_OK;
}

void tarn_close(tarn_engine* engine) {
  if (engine != nullptr) Instance::close(reinterpret_cast<Instance*>(engine));
}

int32_t tarn_plan_memory(const tarn_options* options, tarn_plan* plan_out) {
  tarn_options own;
  tarn_plan out{};
  if (!copy_out(out, plan_out)) return refuse(kBadStruct);
  if (const char* why_not = copy_in(options, &own)) return refuse(why_not);
  Result<tarn::engine::PlanReport> report_or = Instance::plan(instance_args(own));
  if (!report_or) return report(report_or.error());
  describe_plan(report_or->plan, &out);
  copy_out(out, plan_out);
  if (!report_or->plan.fits) report(report_or->why_not);
  return TARN_OK;
}

int32_t tarn_engine_plan(tarn_engine* engine, tarn_plan* plan_out) {
  const EngineCall call(engine);
  tarn_plan out{};
  if (!copy_out(out, plan_out)) return refuse(kBadStruct);
  if (!call) return refuse(call.why_not());
  describe_plan(call.engine().plan(), &out);
  copy_out(out, plan_out);
  return TARN_OK;
}

int32_t tarn_engine_status_get(tarn_engine* handle, tarn_engine_status* status_out) {
  const EngineCall call(handle);
  tarn_engine_status out{};
  if (!copy_out(out, status_out)) return refuse(kBadStruct);
  if (!call) return refuse(call.why_not());
  const Engine& engine = call.engine();
  const Result<void> done = call.run([&]() -> Result<void> {
    const tarn::engine::EngineCounters& counters = engine.counters();
    copy_text(out.device, engine.device_name());
    copy_text(out.isa, engine.isa());
    copy_text(out.io, engine.io_name());
    copy_text(out.arch, tarn::model::arch_name(engine.spec().arch));
    out.memory_locked = engine.memory_locked() ? 1 : 0;
    out.n_workers = engine.n_workers();
    out.n_sessions = engine.n_sessions();
    out.sessions_max = engine.sessions_max();
    out.n_vocab = engine.spec().n_vocab;
    out.context_tokens = engine.plan().context_tokens;
    out.kv_groups_free = engine.pool().groups_free();
    out.kv_groups_max = engine.pool().groups_max();
    out.n_params = engine.spec().n_params;
    out.weights_bytes = engine.spec().weights_file_bytes;
    out.load_ns = counters.load_ns;
    out.n_steps = counters.n_steps;
    out.n_prefill_rows = counters.n_prefill_rows;
    out.n_decode_rows = counters.n_decode_rows;
    out.prefill_ns = counters.prefill_ns;
    out.decode_ns = counters.decode_ns;
    out.weight_bytes_read = counters.weight_bytes;
    out.kv_bytes_read = counters.kv_bytes;
    copy_text(out.select, engine.select_name());
    out.verified = engine.select_verified() ? 1 : 0;
    copy_text(out.store, engine.kv_stream().store_name());
    out.select_steps = counters.kv_reads.n_select_steps;
    out.kv_read_ratio = counters.kv_reads.ratio();
    out.sessions_may_be_lost = engine.kv_stream().may_have_lost_sessions() ? 1 : 0;
    const tarn::MemoryProbe& probe = engine.memory_probe();
    out.gpu_bytes_per_s = probe.device_bytes_per_s;
    out.gpu_shared_bytes_per_s = probe.shared_bytes_per_s;
    out.gpu_promotes_without_copy = probe.promotes_without_copy() ? 1 : 0;
    return {};
  });
  out.dead = done ? 0 : 1;
  copy_out(out, status_out);
  return report(done);
}

int32_t tarn_tokenize(tarn_engine* engine, const char* text, uint64_t text_bytes, uint32_t flags,
                      uint32_t* ids_out, uint64_t ids_max, uint64_t* n_out) {
  const EngineCall call(engine);
  if (n_out == nullptr) return refuse("n_out is NULL");
  *n_out = 0;
  if (!call) return refuse(call.why_not());
  if (text == nullptr && text_bytes > 0) return refuse("text is NULL");
  if (ids_out == nullptr && ids_max > 0) return refuse("ids_out is NULL and ids_max is not 0");
  if ((flags & ~kTextFlags) != 0) return refuse(kBadFlags);
  u64 n = 0;
  const Result<void> done = call.run([&]() -> Result<void> {
    TARN_TRY(const auto ids, call.engine().encode({text, text_bytes}, encode_options(flags)));
    n = ids.size();
    if (n <= ids_max) std::copy(ids.begin(), ids.end(), ids_out);
    return {};
  });
  if (!done) return report(done);
  *n_out = n;
  if (n > ids_max)
    return refuse("ids_max is too small for the ids of this text: n_out has the count");
  return TARN_OK;
}

int32_t tarn_piece(tarn_engine* engine, uint32_t token, char* bytes_out, uint64_t bytes_max,
                   uint64_t* n_out) {
  const EngineCall call(engine);
  if (n_out == nullptr) return refuse("n_out is NULL");
  *n_out = 0;
  if (!call) return refuse(call.why_not());
  if (bytes_out == nullptr && bytes_max > 0)
    return refuse("bytes_out is NULL and bytes_max is not 0");
  if (token >= call.engine().tokenizer().n_vocab()) {
    return refuse("the token is not in the vocabulary");
  }
  u64 n = 0;
  const Result<void> done = call.run([&]() -> Result<void> {
    const std::string_view piece = call.engine().piece(token);
    n = piece.size();
    if (n <= bytes_max) std::copy(piece.begin(), piece.end(), bytes_out);
    return {};
  });
  if (!done) return report(done);
  *n_out = n;
  return n <= bytes_max ? TARN_OK : refuse("bytes_max is too small: n_out has the length");
}

int32_t tarn_is_end(tarn_engine* engine, uint32_t token) {
  const EngineCall call(engine);
  if (!call) return 0;
  const auto& tokenizer = call.engine().tokenizer();
  return token < tokenizer.n_vocab() && tokenizer.is_end(token) ? 1 : 0;
}

int32_t tarn_session_create(tarn_engine* engine, tarn_session** session_out) {
  const EngineCall call(engine);
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  if (!call) return refuse(call.why_not());
  return report(call.run([&]() -> Result<void> {
    TARN_TRY(const auto idx, call.engine().create_session());
    *session_out = call.begin_session(idx);
    return {};
  }));
}

void tarn_session_destroy(tarn_session* session) {
  const SessionCall call(session);
  if (!call) return;
  const Result<void> done = call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    engine.destroy_session(idx);
    call.reading().store(false);  // whoever waits for an event is told so
    return {};
  });
  static_cast<void>(done);  // a dead engine has nothing left to give back
}

int32_t tarn_session_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (ids == nullptr && n_ids > 0) return refuse("ids is NULL");
  return report(call.run([&](Engine& engine, SessionIdx idx) {
    return engine.feed(idx, {ids, n_ids});
  }));
}

int32_t tarn_session_feed_text(tarn_session* session, const char* text, uint64_t text_bytes,
                               uint32_t flags) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (text == nullptr && text_bytes > 0) return refuse("text is NULL");
  if ((flags & ~kTextFlags) != 0) return refuse(kBadFlags);
  return report(call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    TARN_TRY(const auto ids, engine.encode({text, text_bytes}, encode_options(flags)));
    return engine.feed(idx, ids);
  }));
}

int32_t tarn_session_generate(tarn_session* session, const tarn_generate_options* options) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  tarn_generate_options own;
  if (const char* why_not = copy_in(options, &own)) return refuse(why_not);
  if (own.n_stops > tarn::engine::kStopsMax) return refuse("at most 16 stop strings are allowed");
  if (own.n_stops > 0 && own.stops == nullptr) return refuse("stops is NULL");
  if (own.n_logit_biases > 0 && own.logit_biases == nullptr) return refuse("logit_biases is NULL");
  std::array<std::string_view, tarn::engine::kStopsMax> stops;
  for (u32 i = 0; i < own.n_stops; ++i) {
    if (own.stops[i] == nullptr) return refuse("a stop string is NULL");
    // What is longer than a stop string may be is refused as such, and read no further.
    stops[i] = {own.stops[i], strnlen(own.stops[i], tarn::engine::kStopBytesMax + 1)};
  }
  const tarn::engine::GenerateParams params{.sampler = sampler_params(own),
                                            .max_tokens = own.max_tokens,
                                            .ignore_end = own.ignore_end != 0,
                                            .stops = std::span(stops).first(own.n_stops)};
  return report(call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    const bool has_ended = engine.session_state(idx).state != SessionState::generating;
    if (has_ended && call.reading().load()) {
      return tarn::fail(
          {.status = Status::invalid_request,
           .hint = "the last generation's events are unread: call tarn_session_poll until "
                   "DONE, then generate"});
    }
    TARN_CHECK(engine.generate(idx, params));
    call.reading().store(true);
    return {};
  }));
}

int32_t tarn_session_poll(tarn_session* session, int32_t timeout_ms, tarn_event* event_out) {
  const SessionCall call(session);
  tarn_event out{};
  if (!copy_out(out, event_out)) return refuse(kBadStruct);  // before an event is taken
  if (!call) return refuse(call.why_not());
  std::atomic<bool>& reading = call.reading();
  tarn::engine::Event event;
  const Result<void> done = call.thread().next_event(
      call.idx(), reading, timeout_ms, &event, std::span(out.text).first(sizeof out.text - 1));
  if (!done) return report(done);
  switch (event.type) {
    case tarn::engine::EventType::token:
      out.type = TARN_EVENT_TOKEN;
      out.token = event.token.token;
      out.logprob = event.token.logprob;
      out.n_top = event.token.n_top;
      for (u32 i = 0; i < event.token.n_top; ++i) {
        out.top[i] = {event.token.top[i].token, event.token.top[i].logprob};
      }
      break;
    case tarn::engine::EventType::text:
      out.type = TARN_EVENT_TEXT;
      out.text_bytes = event.text_bytes;
      break;
    case tarn::engine::EventType::done:
      out.type = TARN_EVENT_DONE;
      out.finish = static_cast<int32_t>(event.done.finish);
      out.status = static_cast<int32_t>(event.done.status);
      out.n_tokens = event.done.n_tokens;
      out.prefill_ns = event.done.prefill_ns;
      out.decode_ns = event.done.decode_ns;
      out.select_steps = event.done.kv_reads.n_select_steps;
      out.kv_read_ratio = event.done.kv_reads.ratio();
      break;
  }
  copy_out(out, event_out);
  return TARN_OK;
}

int32_t tarn_session_run(tarn_session* session, const tarn_generate_options* options,
                         tarn_event_fn on_event, void* context) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  int32_t status = tarn_session_generate(session, options);
  if (status != TARN_OK) return status;
  tarn_event event = TARN_INIT(tarn_event);
  bool is_cancelled = false;
  do {
    status = tarn_session_poll(session, -1, &event);
    if (status != TARN_OK) return status;
    const bool is_wanted = !is_cancelled || event.type == TARN_EVENT_DONE;
    if (on_event == nullptr || !is_wanted || on_event(context, &event) == 0) continue;
    is_cancelled = true;
    tarn_session_cancel(session);
  } while (event.type != TARN_EVENT_DONE);
  if (event.status == TARN_OK) return TARN_OK;
  Error error{.status = static_cast<Status>(event.status),
              .hint = "the generation ended with an error"};
  const Result<void> why =
      call.run([](Engine& engine, SessionIdx idx) { return engine.given_up(idx); });
  if (!why) error.hint = why.error().hint;
  return report(error);
}

int32_t tarn_session_cancel(tarn_session* session) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  const auto progress = call.progress();
  if (!progress) return report(progress.error());
  return report(call.thread().request_cancel(call.idx()));
}

int32_t tarn_session_info_get(tarn_session* session, tarn_session_info* info_out) {
  const SessionCall call(session);
  tarn_session_info out{};
  if (!copy_out(out, info_out)) return refuse(kBadStruct);
  if (!call) return refuse(call.why_not());
  const auto progress = call.progress();
  if (!progress) return report(progress.error());
  out.generating = progress->state == SessionState::generating ? 1 : 0;
  out.n_tokens = progress->n_ids;
  out.n_computed = progress->n_slots;
  out.prefill_left_ns = progress->prefill_left_ns;
  copy_out(out, info_out);
  return TARN_OK;
}

int32_t tarn_session_tokens(tarn_session* session, uint64_t begin, uint32_t* ids_out,
                            uint64_t ids_max, uint64_t* n_out) {
  const SessionCall call(session);
  if (n_out == nullptr) return refuse("n_out is NULL");
  *n_out = 0;
  if (!call) return refuse(call.why_not());
  if (ids_out == nullptr && ids_max > 0) return refuse("ids_out is NULL and ids_max is not 0");
  return report(call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    const tarn::engine::Session& state = engine.session_state(idx);
    if (begin >= state.n_ids) return {};
    *n_out = std::min<u64>(ids_max, state.n_ids - begin);
    std::copy_n(state.ids.begin() + static_cast<std::ptrdiff_t>(begin), *n_out, ids_out);
    return {};
  }));
}

int32_t tarn_session_wait(tarn_session* session, int32_t timeout_ms) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  const auto progress = call.progress();
  if (!progress) return report(progress.error());
  return report(call.thread().wait_computed(call.idx(), timeout_ms));
}

int32_t tarn_session_truncate(tarn_session* session, uint64_t n_tokens) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (n_tokens > UINT32_MAX) return refuse("the session has fewer tokens than that");
  return report(call.run([&](Engine& engine, SessionIdx idx) {
    return engine.truncate(idx, static_cast<u32>(n_tokens));
  }));
}

int32_t tarn_session_fork(tarn_session* session, tarn_session** session_out) {
  const SessionCall call(session);
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  if (!call) return refuse(call.why_not());
  return report(call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    TARN_TRY(const auto copy_idx, engine.fork(idx));
    *session_out = call.begin_session(copy_idx);
    return {};
  }));
}

int32_t tarn_session_keep(tarn_session* session, const char* name) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  return report(call.run([&](Engine& engine, SessionIdx idx) { return engine.keep(idx, name); }));
}

int32_t tarn_session_save(tarn_session* session, const char* name) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  return report(call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    TARN_CHECK(engine.park(idx, name));
    return {};
  }));
}

int32_t tarn_session_restore(tarn_engine* engine, const char* name, tarn_session** session_out,
                             tarn_restored* restored_out) {
  const EngineCall call(engine);
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  tarn_restored out{};
  if (restored_out != nullptr && !copy_out(out, restored_out)) return refuse(kBadStruct);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  const Result<void> done = call.run([&]() -> Result<void> {
    TARN_TRY(const auto resumed, call.engine().resume(name));
    out.cut_off = resumed.is_cut_off ? 1 : 0;
    out.n_tokens = resumed.n_tokens;
    out.n_computed = resumed.n_computed;
    out.turn_begin = resumed.turn_begin;
    out.took_ns = resumed.took_ns;
    *session_out = call.begin_session(resumed.idx);
    return {};
  });
  if (done && restored_out != nullptr) copy_out(out, restored_out);
  return report(done);
}

int32_t tarn_session_export(tarn_engine* engine, const char* name, const char* path) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  if (path == nullptr) return refuse(kNoPath);
  return report(call.run([&]() -> Result<void> {
    TARN_CHECK(call.engine().export_session(name, path));
    return {};
  }));
}

int32_t tarn_session_import(tarn_engine* engine, const char* path, const char* name) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  if (path == nullptr) return refuse(kNoPath);
  return report(call.run([&]() -> Result<void> {
    TARN_CHECK(call.engine().import_session(path, name != nullptr ? name : ""));
    return {};
  }));
}

int32_t tarn_session_delete(tarn_engine* engine, const char* name) {
  const EngineCall call(engine);
  if (!call) return refuse(call.why_not());
  if (name == nullptr) return refuse(kNoName);
  return report(call.run([&]() -> Result<void> {
    TARN_CHECK(call.engine().delete_session(name));
    return {};
  }));
}

}  // extern "C"
