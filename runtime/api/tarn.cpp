// The C border: every function checks what it is given, hands the work to the engine's thread and
// turns a Result into a status and a sentence. Nothing here may throw: the core is built without
// exceptions.
#include "runtime/api/tarn.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <string_view>

#include "runtime/engine/instance.h"

using tarn::Error;
using tarn::Result;
using tarn::Status;
using tarn::u32;
using tarn::u64;
using tarn::engine::Instance;

namespace {

thread_local char t_error_text[512] = "";

int32_t report(const Error& error) {
  tarn::format_error(error, t_error_text, sizeof t_error_text);
  return static_cast<int32_t>(error.status);
}

int32_t report(const Result<void>& result) { return result ? TARN_OK : report(result.error()); }

Instance::SessionHandle* handle(tarn_session* session) {
  return reinterpret_cast<Instance::SessionHandle*>(session);
}

int32_t refuse(const char* hint) {
  return report(Error{.status = Status::invalid_request, .hint = hint});
}

// Copies what the caller's version of a struct has; fields it does not know stay zero.
template <class T>
bool copy_in(const T* from, T* to) {
  if (from == nullptr || from->struct_size < sizeof(from->struct_size)) return false;
  *to = T{};
  std::memcpy(to, from, std::min<size_t>(from->struct_size, sizeof(T)));
  return true;
}

template <class T>
bool copy_out(const T& from, T* to) {
  if (to == nullptr || to->struct_size < sizeof(to->struct_size)) return false;
  const uint32_t struct_size = to->struct_size;
  std::memcpy(to, &from, std::min<size_t>(struct_size, sizeof(T)));
  to->struct_size = struct_size;
  return true;
}

constexpr const char* kBadStruct =
    "an options struct is NULL or has no struct_size: initialise it with TARN_INIT(type)";

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
  params.n_logit_biases = options.n_logit_biases;
  const u32 n = std::min(options.n_logit_biases, tarn::engine::kLogitBiasesMax);
  for (u32 i = 0; i < n; ++i) {
    params.logit_biases[i] = {options.logit_biases[i].token, options.logit_biases[i].bias};
  }
  return params;
}

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
  if (!copy_in(options, &own)) return refuse(kBadStruct);
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
  if (!copy_in(options, &own)) return refuse(kBadStruct);
  Result<tarn::engine::PlanReport> report_or = Instance::plan(instance_args(own));
  if (!report_or) {
    copy_out(out, plan_out);
    return report(report_or.error());
  }
  describe_plan(report_or->plan, &out);
  if (!report_or->plan.fits) report(report_or->why_not);
  return copy_out(out, plan_out) ? TARN_OK : refuse(kBadStruct);
}

int32_t tarn_engine_plan(tarn_engine* engine, tarn_plan* plan_out) {
  tarn_plan out{};
  describe_plan(reinterpret_cast<Instance*>(engine)->engine.plan(), &out);
  return copy_out(out, plan_out) ? TARN_OK : refuse(kBadStruct);
}

int32_t tarn_engine_status_get(tarn_engine* handle, tarn_engine_status* status_out) {
  auto* instance = reinterpret_cast<Instance*>(handle);
  const tarn::engine::Engine& engine = instance->engine;
  tarn_engine_status out{};
  const Result<void> done = instance->thread.call([&]() -> Result<void> {
    const tarn::engine::EngineCounters& counters = engine.counters();
    copy_text(out.device, "cpu");
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
    return {};
  });
  out.dead = done ? 0 : 1;
  if (!copy_out(out, status_out)) return refuse(kBadStruct);
  return report(done);
}

int32_t tarn_tokenize(tarn_engine* engine, const char* text, uint64_t text_bytes, uint32_t flags,
                      uint32_t* ids_out, uint64_t ids_max, uint64_t* n_out) {
  if (n_out == nullptr) return refuse("n_out is NULL");
  *n_out = 0;
  if (text == nullptr && text_bytes > 0) return refuse("text is NULL");
  auto* instance = reinterpret_cast<Instance*>(engine);
  u64 n = 0;
  const Result<void> done = instance->thread.call([&]() -> Result<void> {
    TARN_TRY(const auto ids, instance->engine.encode({text, text_bytes}, encode_options(flags)));
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
  if (n_out == nullptr) return refuse("n_out is NULL");
  *n_out = 0;
  auto* instance = reinterpret_cast<Instance*>(engine);
  if (token >= instance->engine.tokenizer().n_vocab()) {
    return refuse("the token is not in the vocabulary");
  }
  u64 n = 0;
  const Result<void> done = instance->thread.call([&]() -> Result<void> {
    const std::string_view piece = instance->engine.piece(token);
    n = piece.size();
    if (n <= bytes_max) std::copy(piece.begin(), piece.end(), bytes_out);
    return {};
  });
  if (!done) return report(done);
  *n_out = n;
  return n <= bytes_max ? TARN_OK : refuse("bytes_max is too small: n_out has the length");
}

int32_t tarn_is_end(tarn_engine* engine, uint32_t token) {
  const auto& tokenizer = reinterpret_cast<Instance*>(engine)->engine.tokenizer();
  return token < tokenizer.n_vocab() && tokenizer.is_end(token) ? 1 : 0;
}

int32_t tarn_session_create(tarn_engine* engine, tarn_session** session_out) {
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  auto* instance = reinterpret_cast<Instance*>(engine);
  tarn::engine::SessionIdx idx = 0;
  const Result<void> done = instance->thread.call([&]() -> Result<void> {
    TARN_TRY(idx, instance->engine.create_session());
    return {};
  });
  if (done) *session_out = reinterpret_cast<tarn_session*>(&instance->sessions[idx]);
  return report(done);
}

void tarn_session_destroy(tarn_session* session) {
  if (session == nullptr) return;
  const Result<void> done = handle(session)->instance->thread.call([&]() -> Result<void> {
    handle(session)->instance->engine.destroy_session(handle(session)->idx);
    return {};
  });
  static_cast<void>(done);  // a dead engine has nothing left to give back
}

int32_t tarn_session_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids) {
  if (ids == nullptr && n_ids > 0) return refuse("ids is NULL");
  return report(handle(session)->instance->thread.call([&] {
    return handle(session)->instance->engine.feed(handle(session)->idx, {ids, n_ids});
  }));
}

int32_t tarn_session_feed_text(tarn_session* session, const char* text, uint64_t text_bytes,
                               uint32_t flags) {
  if (text == nullptr && text_bytes > 0) return refuse("text is NULL");
  Instance* instance = handle(session)->instance;
  return report(instance->thread.call([&]() -> Result<void> {
    TARN_TRY(const auto ids, instance->engine.encode({text, text_bytes}, encode_options(flags)));
    return instance->engine.feed(handle(session)->idx, ids);
  }));
}

int32_t tarn_session_generate(tarn_session* session, const tarn_generate_options* options) {
  tarn_generate_options own;
  if (!copy_in(options, &own)) return refuse(kBadStruct);
  if (own.n_stops > tarn::engine::kStopsMax) return refuse("at most 16 stop strings are allowed");
  if (own.n_stops > 0 && own.stops == nullptr) return refuse("stops is NULL");
  if (own.n_logit_biases > 0 && own.logit_biases == nullptr) return refuse("logit_biases is NULL");
  std::array<std::string_view, tarn::engine::kStopsMax> stops;
  for (u32 i = 0; i < own.n_stops; ++i) {
    if (own.stops[i] == nullptr) return refuse("a stop string is NULL");
    stops[i] = own.stops[i];
  }
  const tarn::engine::GenerateParams params{.sampler = sampler_params(own),
                                            .max_tokens = own.max_tokens,
                                            .ignore_end = own.ignore_end != 0,
                                            .stops = std::span(stops).first(own.n_stops)};
  return report(handle(session)->instance->thread.call([&]() -> Result<void> {
    TARN_CHECK(handle(session)->instance->engine.generate(handle(session)->idx, params));
    handle(session)->reading = true;
    return {};
  }));
}

int32_t tarn_session_poll(tarn_session* session, int32_t timeout_ms, tarn_event* event_out) {
  tarn_event out{};
  if (!handle(session)->reading)
    return refuse("the session generates nothing: call tarn_session_generate");
  tarn::engine::Event event;
  const Result<void> done = handle(session)->instance->thread.next_event(
      handle(session)->idx, timeout_ms, &event, std::span(out.text).first(sizeof out.text - 1));
  if (!done) {
    copy_out(tarn_event{}, event_out);
    return report(done);
  }
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
      handle(session)->reading = false;
      break;
  }
  return copy_out(out, event_out) ? TARN_OK : refuse(kBadStruct);
}

int32_t tarn_session_run(tarn_session* session, const tarn_generate_options* options,
                         tarn_event_fn on_event, void* context) {
  int32_t status = tarn_session_generate(session, options);
  if (status != TARN_OK) return status;
  tarn_event event = TARN_INIT(tarn_event);
  do {
    status = tarn_session_poll(session, -1, &event);
    if (status != TARN_OK) return status;
    if (on_event != nullptr && on_event(context, &event) != 0) tarn_session_cancel(session);
  } while (event.type != TARN_EVENT_DONE);
  if (event.status == TARN_OK) return TARN_OK;
  return report(Error{.status = static_cast<Status>(event.status),
                      .hint = "the generation ended with an error"});
}

int32_t tarn_session_cancel(tarn_session* session) {
  if (handle(session)->instance->thread.dead()) return TARN_INTERNAL;
  handle(session)->instance->thread.request_cancel(handle(session)->idx);
  return TARN_OK;
}

int32_t tarn_session_info_get(tarn_session* session, tarn_session_info* info_out) {
  tarn_session_info out{};
  const Result<void> done = handle(session)->instance->thread.call([&]() -> Result<void> {
    const tarn::engine::Session& state =
        handle(session)->instance->engine.session_state(handle(session)->idx);
    out.generating = state.state == tarn::engine::SessionState::generating ? 1 : 0;
    out.n_tokens = state.n_ids;
    out.n_computed = state.sequence.n_slots();
    return {};
  });
  if (!copy_out(out, info_out)) return refuse(kBadStruct);
  return report(done);
}

int32_t tarn_session_tokens(tarn_session* session, uint64_t begin, uint32_t* ids_out,
                            uint64_t ids_max, uint64_t* n_out) {
  if (n_out == nullptr) return refuse("n_out is NULL");
  *n_out = 0;
  return report(handle(session)->instance->thread.call([&]() -> Result<void> {
    const tarn::engine::Session& state =
        handle(session)->instance->engine.session_state(handle(session)->idx);
    if (begin >= state.n_ids) return {};
    *n_out = std::min<u64>(ids_max, state.n_ids - begin);
    std::copy_n(state.ids.begin() + static_cast<std::ptrdiff_t>(begin), *n_out, ids_out);
    return {};
  }));
}

int32_t tarn_session_wait(tarn_session* session, int32_t timeout_ms) {
  return report(handle(session)->instance->thread.wait_computed(handle(session)->idx, timeout_ms));
}

int32_t tarn_session_truncate(tarn_session* session, uint64_t n_tokens) {
  if (n_tokens > UINT32_MAX) return refuse("the session has fewer tokens than that");
  return report(handle(session)->instance->thread.call([&] {
    return handle(session)->instance->engine.truncate(handle(session)->idx,
                                                      static_cast<u32>(n_tokens));
  }));
}

int32_t tarn_session_fork(tarn_session* session, tarn_session** session_out) {
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  Instance* instance = handle(session)->instance;
  tarn::engine::SessionIdx idx = 0;
  const Result<void> done = instance->thread.call([&]() -> Result<void> {
    TARN_TRY(idx, instance->engine.fork(handle(session)->idx));
    return {};
  });
  if (done) *session_out = reinterpret_cast<tarn_session*>(&instance->sessions[idx]);
  return report(done);
}

}  // extern "C"
