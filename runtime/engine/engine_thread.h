// The one thread that drives an engine. Callers lend their turn, not their stack: call() hands a
// piece of work to that thread and waits; between such calls the thread steps while there is
// something to do.
//
//   thread       any but the engine's own: what its callbacks call is refused. Calls are carried
//                out one after another
//   when dead    after a failed assertion (on this thread or on any worker) every waiting and every
//                later call returns Status::internal; the failed thread is parked for ever
//   when lost    after the GPU was lost every waiting and every later call returns
//                Status::device_lost; events from before it can still be read
//   when stopped every waiting call returns Status::cancelled; stop() waits until callers are out
//   when forked  in a child process there is no such thread, and whoever had the lock is not there
//                either: no Visit is admitted, and stop() does nothing
//
// Text is the exception: callers render and tokenize on their own threads, in turn (TextTurn), so
// that no step waits for a text. The engine's thread never takes such a turn. A caller that feeds
// its text keeps its turn until the engine has the ids, so the next caller may wait for a step.
#pragma once

#include <array>
#include <atomic>
#include <csetjmp>

#include "platform/base/assert.h"
#include "platform/base/result.h"
#include "platform/cpu/os_thread.h"
#include "platform/cpu/process.h"
#include "platform/cpu/sync.h"
#include "runtime/engine/engine.h"
#include "runtime/step/reading_time.h"

namespace tarn::engine {

using FatalFn = void (*)(void* context, const AssertSite& site);

class EngineThread {
 public:
  EngineThread() = default;
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;
  ~EngineThread() { stop(); }

  // Where failed assertions go; give it to OpenArgs.sink before the engine is opened.
  const FatalSink* prepare(FatalFn on_fatal, void* context);
  // What the thread does last, when nobody is in a call any more; not where the engine is dead.
  // A GPU that a host's thread gave back would stay that thread's current one.
  void at_end(void (*fn)(void* context), void* context);
  // `engine` is open and borrowed until stop().
  Result<void> start(Engine* engine, std::span<const u32> cpus);
  // Joins, unless the engine is dead. False from one of the engine's own callbacks, and in a child
  // process, where it does nothing.
  bool stop();

  // Around everything that a host's call does here: stop() waits for its end. Nothing may be called
  // where it is not admitted.
  class Visit {
   public:
    explicit Visit(EngineThread& thread);
    bool is_admitted() const { return is_admitted_; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;
    ~Visit();

   private:
    EngineThread& thread_;
    bool is_admitted_;
  };

  // Runs fn(context) on the engine's thread and waits for it.
  Result<void> call(void (*fn)(void* context), void* context);
  // The same for a callable that returns Result<void>.
  template <class Fn>
  Result<void> call(Fn&& fn) {
    struct Frame {
      std::remove_reference_t<Fn>* fn;
      Result<void> result;
    } frame{&fn, {}};
    TARN_CHECK(call(
        [](void* context) {
          auto* f = static_cast<Frame*>(context);
          f->result = (*f->fn)();
        },
        &frame));
    return frame.result;
  }

  // Waits until no other caller works on a text, then has the engine's Encoder for its lifetime.
  class TextTurn {
   public:
    explicit TextTurn(EngineThread& thread);
    // An error: the caller has no turn.
    const Result<void>& begun() const { return begun_; }
    TextTurn(const TextTurn&) = delete;
    TextTurn& operator=(const TextTurn&) = delete;
    ~TextTurn();

    // Runs fn(), which returns Result<void>, on this thread, which is the host's: a failed
    // assertion in it comes back here. Work on texts is refused from then on; the engine, whose
    // state no text touches, goes on. What fn has on its stack is left without destructors.
    template <class Fn>
    Result<void> run(Fn&& fn) {
      const FatalSink sink{.on_fatal = &TextTurn::on_assert, .context = this};
      const FatalSink* const outer = set_thread_fatal_sink(&sink);  // may be another engine's
      if (setjmp(back_) != 0) {  // NOLINT(cert-err52-cpp): there are no exceptions
        set_thread_fatal_sink(outer);
        return is_broken();
      }
      Result<void> done = fn();
      set_thread_fatal_sink(outer);
      return done;
    }

   private:
    static void on_assert(void* self, const AssertSite& site);
    static Unexpected is_broken();

    EngineThread& thread_;
    Result<void> begun_{};
    std::jmp_buf back_{};
  };

  // The next event of a session; waits up to timeout_ms (< 0: for ever). would_block when there is
  // none; an error once `expected` is false, that is after DONE and when the session is destroyed.
  Result<void> next_event(SessionIdx idx, std::atomic<bool>& expected, i32 timeout_ms, Event* event,
                          std::span<char> text);
  // How far a session is, as of the last step or call: without a turn, so a step of seconds is not
  // waited for.
  struct Progress {
    SessionState state = SessionState::free;
    u32 n_ids = 0;
    u32 n_slots = 0;
    LastError last_error{};
    u64 prefill_left_ns = 0;  // an estimate; 0: nothing is read, or nothing known yet
    kv::Reused reused{};
  };
  Result<Progress> progress(SessionIdx idx);
  // Waits until the session computes nothing. would_block when it still does after timeout_ms, and
  // never where it gave up: then there is nothing left to wait for.
  Result<void> wait_computed(SessionIdx idx, i32 timeout_ms);
  // Asks for a cancel without waiting for a turn.
  Result<void> request_cancel(SessionIdx idx);
  bool dead() const { return dead_.load(std::memory_order_acquire); }

 private:
  struct Command {
    void (*fn)(void* context) = nullptr;
    void* context = nullptr;
    bool done = false;
    bool dropped = false;
    bool lost = false;  // not carried out: the GPU was lost before its turn came
    Command* next = nullptr;
  };
  static void on_assert(void* self, const AssertSite& site);
  void tell_host(const AssertSite& site);
  void loop();
  void drop_commands();
  // Why nobody may wait for a turn now, if so.
  Result<void> may_wait() const;
  bool on_own_thread() const;
  bool in_own_process() const { return process_ == process_id(); }
  bool take_and_run_command(Lock& lock);
  void note_progress();

  Engine* engine_ = nullptr;
  u64 process_ = process_id();
  FatalSink sink_{};
  FatalFn on_fatal_ = nullptr;
  void* fatal_context_ = nullptr;
  void (*at_end_)(void* context) = nullptr;
  void* at_end_context_ = nullptr;
  std::atomic<bool> failed_{false};       // an assertion failed; its hook may still run
  std::atomic<bool> text_broken_{false};  // of a text
  std::atomic<bool> dead_{false};         // the hook has returned
  std::atomic<pthread_t> driver_{};       // the engine's thread, once it runs
  std::atomic<pthread_t> failing_{};      // the one whose assertion failed

  Mutex mutex_;
  Condition work_;            // for the engine's thread
  Condition news_;            // for those who wait: a command is done, a step was made
  Command* first_ = nullptr;  // commands stand on their callers' stacks
  Command* last_ = nullptr;
  bool stopping_ = false;
  bool ended_ = false;       // the loop has left
  bool text_taken_ = false;  // by a TextTurn
  u32 n_visitors_ = 0;
  std::array<Progress, kSessionsMax> progress_{};
  std::array<step::ReadingClock, kSessionsMax> readings_{};
  OsThread thread_{};
};

}  // namespace tarn::engine
