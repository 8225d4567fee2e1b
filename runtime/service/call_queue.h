// The calls that were not carried out yet, in the order in which they came.
//
//   order    calls of one session one after another; a call whose text is not read yet holds back
//            later ones of its session alone. A wait is held back by earlier calls, and holds back
//            none
//   time     a look goes through the queue: what stands in slots, and a call for each thread that
//            waits
//   thread   any, under the lock of its owner
#pragma once

#include <bitset>

#include "runtime/service/request.h"
#include "runtime/service/session_board.h"

namespace tarn::service {

// Answers a call on a session that is not there any more, and a submitted one behind one that
// failed.
Unexpected is_destroyed();
Unexpected is_behind_failed();

class CallQueue {
 public:
  void add(Request* request);
  void remove(Request* request);
  Request* first() const { return first_; }
  // The next one whose text is to be read, or nullptr.
  Request* next_text() const;
  // The next one for the engine's thread, which is not a wait; taken out.
  Request* take_ready();
  // A wait that ends now, taken out, with its result; nullptr: none.
  Request* take_settled(const SessionBoard& board, u64 now_ns);
  // When a wait ends in any case; 0: no wait does.
  u64 next_deadline_ns() const;
  // Cancels the session's calls here as soon as they have begun.
  void cancel(SessionIdx session);
  // A submitted call of this session failed: those behind it are not carried out.
  void fail_behind(SessionIdx session);
  // The call that the engine's thread carries out, until nullptr.
  void set_running(Request* request) { running_ = request; }
  Request* running() const { return running_; }

 private:
  using Sessions = std::bitset<engine::kSessionsMax>;
  static bool is_held(const Sessions& held, const Request& request) {
    return request.session != kNoSession && held[request.session];
  }

  Request* first_ = nullptr;
  Request* last_ = nullptr;
  Request* running_ = nullptr;
};

}  // namespace tarn::service
