#include "runtime/service/common.h"

namespace tarn::service {

Result<void> Common::may_go_on() const {
  if (life.is_dead()) return is_dead();
  if (stopping) return is_closing();
  if (engine->device_lost()) return is_lost();
  return {};
}

Result<void> Common::may_wait() const {
  if (!life.is_dead() && life.is_on_own_thread()) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::wrong_state,
                 .hint = "called from one of the engine's own callbacks, which it waits for: note "
                         "what happened there and act on it from another thread"});
  }
  return may_go_on();
}

bool Common::is_failure(const Request& request) const {
  return request.is_submitted && !request.result && !request.waits &&
         request.session != kNoSession && board.of(request.session).epoch == request.epoch;
}

void Common::finish(Request* request) {
  request->state = Request::State::done;
  if (is_failure(*request)) {
    ++board.of(request->session).n_failed;
    queue.fail_behind(request->session);
  }
  if (request->is_submitted) outbox.push_reply(request);
  news.notify_all();
}

void Common::drop_all(const Error& error) {
  for (Request *r = queue.first(), *next = nullptr; r != nullptr; r = next) {
    next = r->next;
    if (r->state == Request::State::reading) continue;
    queue.remove(r);
    r->result = fail(error);
    finish(r);
  }
}

void Common::settle_waits() {
  const u64 now_ns = SystemClock().now_ns();
  bool has_ended = false;
  while (Request* wait = queue.take_settled(board, now_ns)) {
    finish(wait);
    has_ended = true;
  }
  if (has_ended) refresh();
}

// A dead engine's calls end here: its thread is parked, in the middle of one perhaps.
void Common::refresh() {
  const Result<void> goes_on = may_go_on();
  if (life.is_dead()) {
    if (Request* running = queue.running(); running != nullptr && running->is_submitted) {
      queue.set_running(nullptr);
      running->result = is_dead();
      finish(running);
    }
    drop_all(goes_on.error());
  }
  if (!outbox.is_watched()) return;
  const bool has_ended = !goes_on && outbox.n_unanswered() == 0;
  outbox.set_ready(has_ended || outbox.has_reply() || outbox.has_event(*engine, board));
}

}  // namespace tarn::service
