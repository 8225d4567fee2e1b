// The things that an engine has for its host to take: replies to submitted calls, then events of
// its sessions.
//
//   memory     slots in place: a submitted call has one until its reply is taken
//   when full  take_slot() returns nullptr; the event rings stop their own sessions
//   thread     any, under the lock of its owner, but for signal_end()
//   order      replies as the calls ended, all before events; sessions in turn, an event each
#pragma once

#include <array>
#include <atomic>

#include "platform/cpu/ready_fd.h"
#include "runtime/service/request.h"
#include "runtime/service/session_board.h"

namespace tarn::service {

class Outbox {
 public:
  static constexpr u32 kSlots = 256;

  Outbox();
  Result<void> open() { return ready_.open(); }
  // Returns the descriptor; from now on a thread may wait for it.
  int watch();
  bool is_watched() const { return is_watched_; }

  Request* take_slot();
  // Gives back the slot of a call that was not queued.
  void give_back(Request* slot);
  // The call has ended.
  void push_reply(Request* slot);
  // The oldest reply, or nullptr; give it back.
  Request* pop_reply();
  bool has_reply() const { return first_reply_ != nullptr; }
  // Submitted calls that have no reply yet.
  u32 n_unanswered() const { return n_unanswered_; }

  bool has_event(const Engine& engine, const SessionBoard& board) const;
  // The next event of any session that is read.
  bool take_event(Engine& engine, SessionBoard& board, SessionIdx* idx, engine::Event* event,
                  std::span<char> text);

  // Makes the descriptor readable, or not.
  void set_ready(bool is_ready);
  // The engine is dead. Any thread, without the lock.
  void signal_end();

 private:
  Request* free_ = nullptr;
  Request* first_reply_ = nullptr;
  Request* last_reply_ = nullptr;
  u32 n_unanswered_ = 0;
  SessionIdx next_session_ = 0;
  bool is_watched_ = false;
  std::atomic<bool> is_signalled_{false};
  ReadyFd ready_{};
  std::array<Request, kSlots> slots_{};
};

// The next event of a session, under the lock of its reader.
bool take_event_of(Engine& engine, SessionBoard& board, SessionIdx idx, engine::Event* event,
                   std::span<char> text);

}  // namespace tarn::service
