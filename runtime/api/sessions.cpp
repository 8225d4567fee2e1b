// The C border of a conversation: feeding, generating, truncating.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string_view>

#include "runtime/api/border.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;
using engine::SessionIdx;
using engine::SessionState;

namespace {

engine::SamplerParams sampler_params(const tarn_generate_options& options) {
  engine::SamplerParams params;
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
  const u32 n = std::min(options.n_logit_biases, engine::kLogitBiasesMax);
  for (u32 i = 0; i < n; ++i) {
    params.logit_biases[i] = {options.logit_biases[i].token, options.logit_biases[i].bias};
  }
  return params;
}

}  // namespace

extern "C" {

int32_t tarn_session_create(tarn_engine* engine, const tarn_session_options* options,
                            tarn_session** session_out) {
  const EngineCall call(engine);
  if (session_out == nullptr) return refuse("session_out is NULL");
  *session_out = nullptr;
  if (!call) return refuse(call.why_not());
  std::string_view tenant;
  if (const char* why_not = tenant_of(options, &tenant)) return refuse(why_not);
  return report(call.run([&](Engine& own) -> Result<void> {
    TARN_TRY(const auto idx, own.create_session({.tenant = tenant}));
    *session_out = call.begin_session(idx);
    return {};
  }));
}

void tarn_session_destroy(tarn_session* session) {
  const SessionCall call(session);
  if (!call) return;
  const Result<void> done = call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    engine.destroy_session(idx);
    call.reading().store(false);  // a waiting poll returns
    return {};
  });
  static_cast<void>(done);  // a dead engine has nothing left to release
}

int32_t tarn_session_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids) {
  const char* why_not = ids == nullptr && n_ids > 0 ? "ids is NULL" : nullptr;
  return on_session(session, why_not, [&](Engine& engine, SessionIdx idx) {
    return engine.feed(idx, {ids, n_ids});
  });
}

int32_t tarn_session_feed_text(tarn_session* session, const char* text, uint64_t text_bytes,
                               uint32_t flags) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (const char* why_not = bad_text(text, text_bytes, flags)) return refuse(why_not);
  return report(call.run_text([&](text::Encoder& encoder) -> Result<void> {
    TARN_TRY(const auto ids, encoder.encode({text, text_bytes}, encode_options(flags)));
    return call.run([&](Engine& engine, SessionIdx idx) { return engine.feed(idx, ids); });
  }));
}

int32_t tarn_session_generate(tarn_session* session, const tarn_generate_options* options) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  tarn_generate_options own;
  if (const char* why_not = copy_in(options, &own)) return refuse(why_not);
  if (own.n_stops > text::kStopsMax) return refuse("at most 16 stop strings are allowed");
  if (own.n_stops > 0 && own.stops == nullptr) return refuse("stops is NULL");
  if (own.n_logit_biases > 0 && own.logit_biases == nullptr) return refuse("logit_biases is NULL");
  std::array<std::string_view, text::kStopsMax> stops;
  for (u32 i = 0; i < own.n_stops; ++i) {
    if (own.stops[i] == nullptr) return refuse("a stop string is NULL");
    // A stop string that is too long is refused, without reading all of it.
    stops[i] = {own.stops[i], strnlen(own.stops[i], text::kStopBytesMax + 1)};
  }
  const engine::GenerateParams params{.sampler = sampler_params(own),
                                      .max_tokens = own.max_tokens,
                                      .ignore_end = own.ignore_end != 0,
                                      .stops = std::span(stops).first(own.n_stops)};
  return report(call.run([&](Engine& engine, SessionIdx idx) -> Result<void> {
    const bool has_ended = engine.session_state(idx).state != SessionState::generating;
    if (has_ended && call.reading().load()) {
      return fail(
          {.status = Status::invalid_request,
           .hint = "the last generation's events are unread: call tarn_session_poll until DONE, "
                   "then generate"});
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
  engine::Event event;
  const Result<void> done = call.thread().next_event(
      call.idx(), reading, timeout_ms, &event, std::span(out.text).first(sizeof out.text - 1));
  if (!done) return report(done);
  switch (event.type) {
    case engine::EventType::token:
      out.type = TARN_EVENT_TOKEN;
      out.token = event.token.token;
      out.logprob = event.token.logprob;
      out.n_top = event.token.n_top;
      for (u32 i = 0; i < event.token.n_top; ++i) {
        out.top[i] = {event.token.top[i].token, event.token.top[i].logprob};
      }
      break;
    case engine::EventType::text:
      out.type = TARN_EVENT_TEXT;
      out.text_bytes = event.text_bytes;
      break;
    case engine::EventType::done:
      out.type = TARN_EVENT_DONE;
      out.finish = static_cast<int32_t>(event.done.finish);
      out.status = static_cast<int32_t>(event.done.status);
      out.n_tokens = event.done.n_tokens;
      out.prefill_ns = event.done.prefill_ns;
      out.decode_ns = event.done.decode_ns;
      out.select_steps = event.done.kv_reads.n_select_steps;
      out.kv_read_ratio = event.done.kv_reads.ratio();
      out.reused_from_memory = event.done.reused.n_from_memory;
      out.reused_from_disk = event.done.reused.n_from_disk;
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
  const Result<void> why = call.run([](Engine& engine, SessionIdx idx) {
    return engine.session_state(idx).last_error.as_result();
  });
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
  out.reused_from_memory = progress->reused.n_from_memory;
  out.reused_from_disk = progress->reused.n_from_disk;
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
    const engine::Session& state = engine.session_state(idx);
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
  const bool has_fewer = n_tokens > UINT32_MAX;
  return on_session(session, has_fewer ? "the session has fewer tokens than n_tokens" : nullptr,
                    [&](Engine& engine, SessionIdx idx) {
                      return engine.truncate(idx, static_cast<u32>(n_tokens));
                    });
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

}  // extern "C"
