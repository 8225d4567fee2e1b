// The way of a host's calls to an engine, which two threads serve: one drives the engine, one reads
// texts. A call goes through the text thread if it has a text, then through the engine's if it has
// work there. Its caller waits for the end, or takes a reply later.
//
//   thread       any but the engine's own: what its callbacks call is refused
//   memory       all in place, none is asked for after start()
//   when dead    after a failed assertion (on the engine's thread or on a worker) every waiting and
//                every later call returns Status::internal; the failed thread is parked for ever
//   when broken  after one on the text thread the same for calls with a text; others go on
//   when lost    after the GPU was lost every waiting and every later call returns
//                Status::device_lost; events from before it can still be read
//   when stopped every waiting call returns Status::cancelled, submitted ones get no reply; stop()
//                waits until callers are out
//   when forked  a child has none of these threads, nor the one that had the lock: no Visit is
//                admitted, and stop() does nothing
#pragma once

#include "runtime/service/engine_thread.h"
#include "runtime/service/text_thread.h"

namespace tarn::service {

class Service {
 public:
  Service() = default;
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  ~Service() { stop(); }

  // Where failed assertions go; give it to OpenArgs.sink before the engine is opened.
  const FatalSink* prepare(FatalFn on_fatal, void* context);
  // Sets what the engine's thread does last, when no thread is in a call any more; not where the
  // engine is dead. A GPU that a host's thread gave back would stay that thread's current one.
  void at_end(void (*fn)(void* context), void* context) { engine_thread_.at_end(fn, context); }
  // `engine` is borrowed until stop(); it is opened by now, or by a call.
  Result<void> start(Engine* engine, std::span<const u32> cpus);
  // Joins, unless the engine is dead. False from one of the engine's own callbacks, and in a child
  // process, where it does nothing.
  bool stop();
  bool is_dead() const { return common_.life.is_dead(); }

  // Around everything that a host's call does here: stop() waits for its end. Nothing may be called
  // where it is not admitted.
  class Visit {
   public:
    explicit Visit(Service& service);
    bool is_admitted() const { return is_admitted_; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit();

   private:
    Common& common_;
    bool is_admitted_;
  };

  // Carries the call out and waits for it.
  Result<void> call(Request request);
  // The same for fn(), which returns a Result, on the engine's thread.
  template <class Fn>
  requires std::is_invocable_v<Fn&> Result<void> call(Fn&& fn) {
    return call(Request{.on_engine = [&fn](Engine&, const Ids&) -> Result<void> {
      TARN_CHECK(fn());
      return {};
    }});
  }
  // Returns at once; the reply comes with take(). would_block: Outbox::kSlots have none yet, or it
  // was not taken.
  Result<void> submit(const Request& request, void* tag);

  struct Taken {
    bool is_reply = false;
    SessionIdx session = kNoSession;
    void* user = nullptr;
    void* tag = nullptr;    // of a reply
    Result<void> result{};  // of a reply
    engine::Event event{};
  };
  // The next reply or event; does not wait. would_block when there is none. After the last one of a
  // dead or lost engine why that is.
  Result<void> take(Taken* taken, std::span<char> text);
  // Readable while take() has something.
  int watch();

  // The next event of a session; waits up to timeout_ms (< 0: for ever). would_block when there is
  // none; an error when nothing is expected, that is after DONE and when the session is destroyed.
  Result<void> next_event(SessionIdx idx, i32 timeout_ms, Taken* taken, std::span<char> text);
  // Without a turn, so a step of seconds is not waited for.
  Result<Progress> progress(SessionIdx idx);
  // Calls fn(idx, row) for each open session.
  template <class Fn>
  Result<void> for_each_session(Fn&& fn) {
    const Lock lock(common_.mutex);
    TARN_CHECK(common_.may_wait());
    for (SessionIdx idx = 0; idx < common_.board.n_sessions(); ++idx) {
      if (!common_.board.of(idx).is_free()) fn(idx, common_.board.of(idx));
    }
    return {};
  }
  // Asks for a cancel of what runs and of what was called, without waiting for a turn.
  Result<void> request_cancel(SessionIdx idx);

  // By calls on the engine's thread. A session begins, with the call's user if that is no session's
  // call; and ends.
  void begin_session(SessionIdx idx);
  void end_session(SessionIdx idx);
  // A generation begins; whether the last one's events are unread.
  void begin_reading(SessionIdx idx);
  bool is_read(SessionIdx idx);

 private:
  void enter(Request* request);
  Result<void> wait_for(Request* request, Lock& lock);

  Common common_{};
  EngineThread engine_thread_{common_};
  TextThread text_thread_{common_};
};

// A timeout in milliseconds, negative for none, as a time of the clock; 0: none.
u64 deadline_ns_of(i32 timeout_ms);

}  // namespace tarn::service
