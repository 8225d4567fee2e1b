// Shared by a host's threads and the two of a service, under one lock.
//
//   work   wakes the engine's thread, texts the text thread, news the threads that wait for either
#pragma once

#include "platform/clock/clock.h"
#include "platform/cpu/sync.h"
#include "runtime/service/call_queue.h"
#include "runtime/service/life.h"
#include "runtime/service/outbox.h"
#include "runtime/service/session_board.h"

namespace tarn::service {

// A thread that died of an assertion cannot wake those who wait for it; they look for themselves.
inline constexpr u64 kDeadCheckNs = 50'000'000;

struct Common {
  Life life{};
  Engine* engine = nullptr;

  Mutex mutex;
  Condition work, texts, news;
  CallQueue queue{};
  SessionBoard board{};
  Outbox outbox{};
  IdRing ids{};
  bool stopping = false;
  bool engine_ended = false;  // the engine's thread has left its loop, or never began
  bool text_ended = true;     // the text thread does nothing any more, or never began
  u32 n_visitors = 0;

  // Called with the lock held, like all below: why nothing more can be carried out, if so.
  Result<void> may_go_on() const;
  // Why the calling thread may not wait now, if so.
  Result<void> may_wait() const;
  // Whether the reply tells of a failure that calls behind it depend on.
  bool is_failure(const Request& request) const;
  // The call has its result, and is in the queue no more.
  void finish(Request* request);
  // Ends all calls with this error, but for one whose text is being read.
  void drop_all(const Error& error);
  // Ends waits whose time has come.
  void settle_waits();
  // After whatever may have changed what there is to take.
  void refresh();
};

}  // namespace tarn::service
