#include "runtime/service/call_queue.h"

#include <algorithm>

namespace tarn::service {

Unexpected is_destroyed() {
  return fail({.status = Status::invalid_request,
               .reason = Reason::wrong_state,
               .hint = "the session was destroyed: create another one"});
}

Unexpected is_behind_failed() {
  return fail({.status = Status::cancelled,
               .hint = "an earlier call of the session failed, and its reply says why: take it, "
                       "then submit this call again"});
}

void CallQueue::add(Request* request) {
  request->next = nullptr;
  request->before = last_;
  (last_ != nullptr ? last_->next : first_) = request;
  last_ = request;
}

void CallQueue::remove(Request* request) {
  (request->before != nullptr ? request->before->next : first_) = request->next;
  (request->next != nullptr ? request->next->before : last_) = request->before;
  request->next = request->before = nullptr;
}

Request* CallQueue::next_text() const {
  for (Request* r = first_; r != nullptr; r = r->next) {
    if (r->state == Request::State::text) return r;
  }
  return nullptr;
}

Request* CallQueue::take_ready() {
  Sessions held;
  for (Request* r = first_; r != nullptr; r = r->next) {
    if (r->waits || is_held(held, *r)) continue;
    if (r->state == Request::State::ready) {
      remove(r);
      return r;
    }
    if (r->session != kNoSession) held.set(r->session);
  }
  return nullptr;
}

Request* CallQueue::take_settled(const SessionBoard& board, u64 now_ns) {
  Sessions held;
  if (running_ != nullptr && running_->session != kNoSession) held.set(running_->session);
  for (Request* r = first_; r != nullptr; r = r->next) {
    if (!r->waits) {
      if (r->session != kNoSession) held.set(r->session);
      continue;
    }
    const SessionRow& row = board.of(r->session);
    if (row.is_free() || row.epoch != r->epoch) {
      r->result = is_destroyed();
    } else if (!held[r->session] && row.progress.state != engine::SessionState::computing) {
      r->result = row.progress.last_error.as_result();
    } else if (r->deadline_ns != 0 && now_ns >= r->deadline_ns) {
      r->result = fail({.status = Status::would_block,
                        .reason = Reason::not_yet,
                        .hint = "the session still computes its tokens"});
    } else {
      continue;
    }
    remove(r);
    return r;
  }
  return nullptr;
}

u64 CallQueue::next_deadline_ns() const {
  u64 next_ns = 0;
  for (Request* r = first_; r != nullptr; r = r->next) {
    if (r->waits && r->deadline_ns != 0 && (next_ns == 0 || r->deadline_ns < next_ns))
      next_ns = r->deadline_ns;
  }
  return next_ns;
}

void CallQueue::fail_behind(SessionIdx session) {
  for (Request* r = first_; r != nullptr; r = r->next) {
    const bool depends = r->is_submitted && !r->is_sure && r->session == session;
    r->is_behind_failed = r->is_behind_failed || depends;
  }
}

void CallQueue::cancel(SessionIdx session) {
  for (Request* r = first_; r != nullptr; r = r->next) {
    r->is_cancelled = r->is_cancelled || r->session == session;
  }
  if (running_ != nullptr && running_->session == session) running_->is_cancelled = true;
}

}  // namespace tarn::service
