// The C border of what an engine tells: events, replies, and the state of sessions, none of which
// waits for a step.
#include <algorithm>
#include <span>

#include "runtime/api/border.h"

using namespace tarn;
using namespace tarn::api;
using engine::SessionIdx;
using engine::SessionState;

namespace {

constexpr const char* kBadRows =
    "rows_out[0].struct_size must be sizeof(tarn_session_row), and is the size of each row";

std::span<char> text_of(tarn_event* event) {
  return std::span(event->text).first(sizeof event->text - 1);
}

void describe_reply(const Result<void>& result, tarn_event* out) {
  out->type = TARN_EVENT_REPLY;
  if (result) return;
  const Error& error = result.error();
  out->status = static_cast<int32_t>(error.status);
  out->text_bytes = static_cast<u32>(format_error(error, out->text, sizeof out->text));
  out->reason = static_cast<int32_t>(error.reason);
  out->key = error.key;
  copy_figures(error, out->figures);
}

void describe_event(const engine::Event& event, tarn_event* out) {
  switch (event.type) {
    case engine::EventType::token:
      out->type = TARN_EVENT_TOKEN;
      out->token = event.token.token;
      out->text_bytes = event.text_bytes;
      out->logprob = event.token.logprob;
      out->n_top = event.token.n_top;
      for (u32 i = 0; i < event.token.n_top; ++i) {
        out->top[i] = {event.token.top[i].token, event.token.top[i].logprob};
      }
      break;
    case engine::EventType::text:
      out->type = TARN_EVENT_TEXT;
      out->text_bytes = event.text_bytes;
      break;
    case engine::EventType::done:
      out->type = TARN_EVENT_DONE;
      out->finish = static_cast<int32_t>(event.done.finish);
      out->status = static_cast<int32_t>(event.done.status);
      out->reason = static_cast<int32_t>(event.done.reason);
      out->n_tokens = event.done.n_tokens;
      out->prefill_ns = event.done.prefill_ns;
      out->decode_ns = event.done.decode_ns;
      out->wait_ns = event.done.wait_ns;
      out->select_steps = event.done.kv_reads.n_select_steps;
      out->kv_read_ratio = event.done.kv_reads.ratio();
      out->reused_from_memory = event.done.reused.n_from_memory;
      out->reused_from_disk = event.done.reused.n_from_disk;
      out->n_placed = event.done.reused.n_placed;
      out->n_recomputed = event.done.reused.n_recomputed;
      break;
  }
}

void describe(const service::Service::Taken& taken, Instance& instance, tarn_event* out) {
  out->key = "";
  taken.is_reply ? describe_reply(taken.result, out) : describe_event(taken.event, out);
  out->session = instance.handle_of(taken.session);
  out->user = taken.user;
  out->request = taken.tag;
}

int32_t state_of(SessionState state) {
  return state == SessionState::generating  ? TARN_SESSION_GENERATING
         : state == SessionState::computing ? TARN_SESSION_COMPUTING
                                            : TARN_SESSION_IDLE;
}

}  // namespace

extern "C" {

int32_t tarn_engine_fd(tarn_engine* engine) {
  const EngineCall call(engine);
  if (call) return call.service().watch();
  refuse(call.why_not());
  return -1;
}

int32_t tarn_engine_take(tarn_engine* engine, tarn_event* event_out) {
  const EngineCall call(engine);
  tarn_event out{};
  if (!copy_out(out, event_out))
    return refuse({"struct_size", kBadStruct});  // before an event is taken
  if (!call) return refuse(call.why_not());
  service::Service::Taken taken;
  if (const Result<void> done = call.service().take(&taken, text_of(&out)); !done)
    return report(done);
  describe(taken, call.instance(), &out);
  copy_out(out, event_out);
  return TARN_OK;
}

int32_t tarn_session_poll(tarn_session* session, int32_t timeout_ms, tarn_event* event_out) {
  const SessionCall call(session);
  tarn_event out{};
  if (!copy_out(out, event_out))
    return refuse({"struct_size", kBadStruct});  // before an event is taken
  if (!call) return refuse(call.why_not());
  service::Service::Taken taken;
  const Result<void> done =
      call.service().next_event(call.idx(), timeout_ms, &taken, text_of(&out));
  if (!done) return report(done);
  describe(taken, call.instance(), &out);
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
              .reason = static_cast<Reason>(event.reason),
              .hint = "the generation ended with an error"};
  const auto progress = call.service().progress(call.idx());
  if (progress && progress->last_error.status != Status::ok) {
    error.hint = progress->last_error.hint;
    error.figures = progress->last_error.figures;
  }
  return report(error);
}

int32_t tarn_session_cancel(tarn_session* session) {
  const SessionCall call(session);
  if (!call) return refuse(call.why_not());
  const auto progress = call.service().progress(call.idx());
  if (!progress) return report(progress.error());
  return report(call.service().request_cancel(call.idx()));
}

int32_t tarn_session_info_get(tarn_session* session, tarn_session_info* info_out) {
  const SessionCall call(session);
  tarn_session_info out{};
  if (!copy_out(out, info_out)) return refuse({"struct_size", kBadStruct});
  if (!call) return refuse(call.why_not());
  const auto progress = call.service().progress(call.idx());
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

int32_t tarn_session_list(tarn_engine* engine, tarn_session_row* rows_out, uint64_t rows_max,
                          uint64_t* n_out) {
  const EngineCall call(engine);
  if (n_out == nullptr) return refuse({"n_out", "n_out is NULL"});
  *n_out = 0;
  if (!call) return refuse(call.why_not());
  Rows<tarn_session_row> rows(rows_out, rows_max);
  if (!rows.is_valid()) return refuse({"struct_size", kBadRows});
  const Result<void> listed =
      call.service().for_each_session([&](SessionIdx idx, const service::SessionRow& session) {
        tarn_session_row row{};
        row.session = call.instance().handle_of(idx);
        row.user = session.user;
        row.state = state_of(session.progress.state);
        row.priority = static_cast<int32_t>(session.progress.priority);
        row.n_tokens = session.progress.n_ids;
        row.n_computed = session.progress.n_slots;
        rows.add(row);
      });
  *n_out = rows.n();
  return report(listed);
}

}  // extern "C"
