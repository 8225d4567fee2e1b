#include "runtime/service/outbox.h"

namespace tarn::service {

Outbox::Outbox() {
  for (Request& slot : slots_) {
    slot.next = free_;
    free_ = &slot;
  }
}

int Outbox::watch() {
  is_watched_ = true;
  return ready_.fd();
}

Request* Outbox::take_slot() {
  Request* slot = free_;
  if (slot == nullptr) return nullptr;
  free_ = slot->next;
  ++n_unanswered_;
  return slot;
}

void Outbox::give_back(Request* slot) {
  slot->next = free_;
  free_ = slot;
}

void Outbox::push_reply(Request* slot) {
  --n_unanswered_;
  slot->next = nullptr;
  (first_reply_ != nullptr ? last_reply_->next : first_reply_) = slot;
  last_reply_ = slot;
}

Request* Outbox::pop_reply() {
  Request* reply = first_reply_;
  if (reply != nullptr) first_reply_ = reply->next;
  return reply;
}

bool Outbox::has_event(const Engine& engine, const SessionBoard& board) const {
  for (SessionIdx idx = 0; idx < board.n_sessions(); ++idx) {
    if (board.of(idx).is_read && engine.sessions().state(idx).generation.events.has_event())
      return true;
  }
  return false;
}

bool Outbox::take_event(Engine& engine, SessionBoard& board, SessionIdx* idx, engine::Event* event,
                        std::span<char> text) {
  for (u32 i = 0; i < board.n_sessions(); ++i) {
    *idx = (next_session_ + i) % board.n_sessions();
    if (!take_event_of(engine, board, *idx, event, text)) continue;
    next_session_ = *idx + 1;
    return true;
  }
  return false;
}

void Outbox::set_ready(bool is_ready) {
  if (is_signalled_.exchange(is_ready) == is_ready) return;
  is_ready ? ready_.set() : ready_.clear();
}

void Outbox::signal_end() {
  is_signalled_.store(true);
  ready_.set();
}

bool take_event_of(Engine& engine, SessionBoard& board, SessionIdx idx, engine::Event* event,
                   std::span<char> text) {
  SessionRow& row = board.of(idx);
  if (!row.is_read || !engine.sessions().take_event(idx, event, text)) return false;
  if (event->type == engine::EventType::done) row.is_read = false;  // before anybody begins anew
  return true;
}

}  // namespace tarn::service
