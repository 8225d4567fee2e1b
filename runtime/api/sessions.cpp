// The C border of a conversation: feeding, generating, truncating.
#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "runtime/api/border.h"
#include "runtime/service/text_desk.h"

using namespace tarn;
using namespace tarn::api;
using engine::Engine;
using engine::SessionIdx;
using engine::SessionState;
using service::Ids;
using service::TextDesk;

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

using Stops = std::array<std::string_view, text::kStopsMax>;

// Reads what the options ask for; or tells why they are refused.
Refusal read_options(const tarn_generate_options& options, Stops* stops,
                     engine::GenerateParams* params) {
  if (options.n_stops > text::kStopsMax) return {"stops", "at most 16 stop strings are allowed"};
  if (options.n_stops > 0 && options.stops == nullptr) return {"stops", "stops is NULL"};
  if (options.n_logit_biases > 0 && options.logit_biases == nullptr)
    return {"logit_biases", "logit_biases is NULL"};
  for (u32 i = 0; i < options.n_stops; ++i) {
    if (options.stops[i] == nullptr) return {"stops", "a stop string is NULL"};
    // A stop string that is too long is refused, without reading all of it.
    (*stops)[i] = {options.stops[i], strnlen(options.stops[i], text::kStopBytesMax + 1)};
  }
  params->sampler = sampler_params(options);
  params->max_tokens = options.max_tokens;
  params->ignore_end = options.ignore_end != 0;
  params->stops = std::span(*stops).first(options.n_stops);
  return {};
}

int32_t create(const Way& way, tarn_engine* engine, const tarn_session_options* options,
               tarn_session** session_out) {
  const EngineCall call(engine);
  if (session_out == nullptr) return refuse({"session_out", "session_out is NULL"});
  *session_out = nullptr;
  if (!call) return refuse(call.why_not());
  NewSession begins;
  if (const Refusal why_not = read_options(options, &begins)) return refuse(why_not);
  return call.serve(
      way,
      [args = begins.args, session_out, &on = call.instance()](Engine& own) -> Result<void> {
        TARN_TRY(const auto idx, own.sessions().create(args));
        *session_out = on.begin_session(idx);
        return {};
      },
      begins.user);
}

int32_t destroy(const Way& way, tarn_session* session) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  return call.serve(
      way,
      [&on = call.service()](Engine& engine, SessionIdx idx) -> Result<void> {
        on.end_session(idx);
        engine.sessions().destroy(idx);
        return {};
      },
      /*is_sure=*/true);
}

int32_t feed(const Way& way, tarn_session* session, const uint32_t* ids, uint64_t n_ids) {
  Refusal why_not;
  if (ids == nullptr && n_ids > 0) why_not = {"ids", "ids is NULL"};
  return on_session(way, session, why_not, [ids, n_ids](Engine& engine, SessionIdx idx) {
    return engine.sessions().feed(idx, {ids, n_ids});
  });
}

int32_t feed_text(const Way& way, tarn_session* session, const char* text, uint64_t text_bytes,
                  uint32_t flags) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  if (const Refusal why_not = bad_text(text, text_bytes, flags)) return refuse(why_not);
  return call.serve_text(
      way,
      [whole = std::string_view(text, text_bytes), flags](TextDesk& desk) {
        return desk.encode(whole, feed_options(flags));
      },
      [](Engine& engine, SessionIdx idx, const Ids& ids) {
        return engine.sessions().feed(idx, ids.ids);
      });
}

int32_t generate(const Way& way, tarn_session* session, const tarn_generate_options* options) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  tarn_generate_options own;
  if (const Refusal why_not = copy_in(options, &own)) return refuse(why_not);
  Stops stops;
  engine::GenerateParams checked;
  if (const Refusal why_not = read_options(own, &stops, &checked)) return refuse(why_not);
  const u64 deadline_ns =
      own.deadline_ms == 0 ? 0 : call.instance().now_ns() + u64{own.deadline_ms} * 1'000'000;
  // The memory that the options point to is read again where it is used: a call has no room for it.
  return call.serve(
      way,
      [own, deadline_ns, &on = call.service()](Engine& engine, SessionIdx idx) -> Result<void> {
        const bool has_ended = engine.sessions().state(idx).state != SessionState::generating;
        if (has_ended && on.is_read(idx)) {
          return fail(
              {.status = Status::invalid_request,
               .reason = Reason::wrong_state,
               .hint =
                   "the last generation's events are unread: call tarn_session_poll until DONE, "
                   "then generate"});
        }
        Stops own_stops;
        engine::GenerateParams params{.deadline_ns = deadline_ns};
        if (const Refusal why_not = read_options(own, &own_stops, &params)) {
          return fail(why_not.error());
        }
        TARN_CHECK(engine.sessions().generate(idx, params));
        on.begin_reading(idx);
        return {};
      });
}

int32_t tokens(const Way& way, tarn_session* session, uint64_t begin, uint32_t* ids_out,
               uint64_t ids_max, uint64_t* n_out) {
  const SessionCall call(session);
  if (n_out == nullptr) return refuse({"n_out", "n_out is NULL"});
  *n_out = 0;
  if (!call) return refuse(call.why_not());
  if (ids_out == nullptr && ids_max > 0)
    return refuse({"ids_out", "ids_out is NULL and ids_max is not 0"});
  return call.serve(way, [=](Engine& engine, SessionIdx idx) -> Result<void> {
    const engine::Session& state = engine.sessions().state(idx);
    if (begin >= state.tokens.n_ids) return {};
    *n_out = std::min<u64>(ids_max, state.tokens.n_ids - begin);
    std::copy_n(state.tokens.ids.begin() + static_cast<std::ptrdiff_t>(begin), *n_out, ids_out);
    return {};
  });
}

int32_t wait(const Way& way, tarn_session* session, int32_t timeout_ms) {
  const SessionCall call(session);
  return call ? call.serve_wait(way, timeout_ms) : refuse(call.why_not());
}

int32_t truncate(const Way& way, tarn_session* session, uint64_t n_tokens) {
  const bool has_fewer = n_tokens > UINT32_MAX;
  return on_session(
      way, session,
      has_fewer ? Refusal("n_tokens", "the session has fewer tokens than n_tokens") : Refusal(),
      [n_tokens](Engine& engine, SessionIdx idx) {
        return engine.sessions().truncate(idx, static_cast<u32>(n_tokens));
      });
}

int32_t fork_session(const Way& way, tarn_session* session, tarn_session** session_out) {
  const SessionCall call(session);
  if (session_out == nullptr) return refuse({"session_out", "session_out is NULL"});
  *session_out = nullptr;
  if (!call) return refuse(call.why_not());
  return call.serve(
      way, [session_out, &on = call.instance()](Engine& engine, SessionIdx idx) -> Result<void> {
        TARN_TRY(const auto copy_idx, engine.sessions().fork(idx));
        *session_out = on.begin_session(copy_idx);
        return {};
      });
}

}  // namespace

extern "C" {

int32_t tarn_session_create(tarn_engine* engine, const tarn_session_options* options,
                            tarn_session** session_out) {
  return create(kWaits, engine, options, session_out);
}
int32_t tarn_submit_create(tarn_engine* engine, const tarn_session_options* options,
                           tarn_session** session_out, void* request) {
  return create(later(request), engine, options, session_out);
}

void tarn_session_destroy(tarn_session* session) {
  static_cast<void>(destroy(kWaits, session));  // a dead engine has nothing left to release
}
int32_t tarn_submit_destroy(tarn_session* session, void* request) {
  return destroy(later(request), session);
}

int32_t tarn_session_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids) {
  return feed(kWaits, session, ids, n_ids);
}
int32_t tarn_submit_feed(tarn_session* session, const uint32_t* ids, uint64_t n_ids,
                         void* request) {
  return feed(later(request), session, ids, n_ids);
}

int32_t tarn_session_feed_text(tarn_session* session, const char* text, uint64_t text_bytes,
                               uint32_t flags) {
  return feed_text(kWaits, session, text, text_bytes, flags);
}
int32_t tarn_submit_feed_text(tarn_session* session, const char* text, uint64_t text_bytes,
                              uint32_t flags, void* request) {
  return feed_text(later(request), session, text, text_bytes, flags);
}

int32_t tarn_session_generate(tarn_session* session, const tarn_generate_options* options) {
  return generate(kWaits, session, options);
}
int32_t tarn_submit_generate(tarn_session* session, const tarn_generate_options* options,
                             void* request) {
  return generate(later(request), session, options);
}

int32_t tarn_session_tokens(tarn_session* session, uint64_t begin, uint32_t* ids_out,
                            uint64_t ids_max, uint64_t* n_out) {
  return tokens(kWaits, session, begin, ids_out, ids_max, n_out);
}
int32_t tarn_submit_tokens(tarn_session* session, uint64_t begin, uint32_t* ids_out,
                           uint64_t ids_max, uint64_t* n_out, void* request) {
  return tokens(later(request), session, begin, ids_out, ids_max, n_out);
}

int32_t tarn_session_wait(tarn_session* session, int32_t timeout_ms) {
  return wait(kWaits, session, timeout_ms);
}
int32_t tarn_submit_wait(tarn_session* session, int32_t timeout_ms, void* request) {
  return wait(later(request), session, timeout_ms);
}

int32_t tarn_session_truncate(tarn_session* session, uint64_t n_tokens) {
  return truncate(kWaits, session, n_tokens);
}
int32_t tarn_submit_truncate(tarn_session* session, uint64_t n_tokens, void* request) {
  return truncate(later(request), session, n_tokens);
}

int32_t tarn_session_fork(tarn_session* session, tarn_session** session_out) {
  return fork_session(kWaits, session, session_out);
}
int32_t tarn_submit_fork(tarn_session* session, tarn_session** session_out, void* request) {
  return fork_session(later(request), session, session_out);
}

}  // extern "C"
