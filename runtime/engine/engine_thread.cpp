#include "runtime/engine/engine_thread.h"

#include <algorithm>

namespace tarn::engine {
namespace {

// A thread that died of an assertion cannot wake those who wait for it; they look for themselves.
constexpr u64 kDeadCheckNs = 50'000'000;

Unexpected is_dead() {
  return fail({.status = Status::internal,
               .hint =
                   "the engine is dead: one of its assertions failed (see the fatal hook); open a "
                   "new engine"});
}

Unexpected is_lost() {
  return fail({.status = Status::device_lost,
               .hint =
                   "the GPU is lost, and with it this engine: close it, and restart the process "
                   "to use the GPU again"});
}

Unexpected is_closing() {
  return fail({.status = Status::cancelled, .hint = "the engine is being closed"});
}

constexpr f64 kLeftMaxS = 1e9;  // what it takes to be told as "for ever", in ns an u64

bool is_busy(SessionState state) {
  return state == SessionState::computing || state == SessionState::generating;
}

// A timeout in milliseconds, negative for none, cut into looks at whether the engine still lives.
class Deadline {
 public:
  explicit Deadline(i32 timeout_ms) : never_(timeout_ms < 0) {
    if (!never_) at_ns_ = SystemClock().now_ns() + static_cast<u64>(timeout_ms) * 1'000'000;
  }
  bool passed() const { return left_ns() == 0; }
  u64 next_look_ns() const { return std::min(kDeadCheckNs, left_ns()); }

 private:
  u64 left_ns() const {
    const u64 now_ns = SystemClock().now_ns();
    return never_ ? ~u64{0} : now_ns < at_ns_ ? at_ns_ - now_ns : 0;
  }
  bool never_;
  u64 at_ns_ = 0;
};

}  // namespace

const FatalSink* EngineThread::prepare(FatalFn on_fatal, void* context) {
  on_fatal_ = on_fatal;
  fatal_context_ = context;
  sink_ = {.on_fatal = &EngineThread::on_assert, .context = this};
  return &sink_;
}

void EngineThread::on_assert(void* self, const AssertSite& site) {
  auto* thread = static_cast<EngineThread*>(self);
  thread->tell_host(site);
  // Only now do callers learn of it: what the hook wrote is there when they read it.
  thread->dead_.store(true, std::memory_order_release);
}

// Of the first failure alone.
void EngineThread::tell_host(const AssertSite& site) {
  if (failed_.exchange(true)) return;
  failing_.store(pthread_self());
  if (on_fatal_ != nullptr) on_fatal_(fatal_context_, site);
}

void EngineThread::at_end(void (*fn)(void* context), void* context) {
  at_end_ = fn;
  at_end_context_ = context;
}

Result<void> EngineThread::start(Engine* engine, std::span<const u32> cpus) {
  engine_ = engine;
  engine_->at_early_end(
      [](void* self) {
        auto* thread = static_cast<EngineThread*>(self);
        const Lock lock(thread->mutex_);
        thread->note_progress();
        thread->news_.notify_all();
      },
      this);
  return thread_.start({.body = [](void* self) { static_cast<EngineThread*>(self)->loop(); },
                        .context = this,
                        .name = "tarn-engine",
                        .cpus = cpus});
}

bool EngineThread::stop() {
  if (!thread_.running()) return true;
  if (!in_own_process() || on_own_thread()) return false;
  {
    Lock lock(mutex_);
    stopping_ = true;
    engine_->request_end();  // a step under way need not be waited for
    work_.notify_all();
    news_.notify_all();
    while ((!ended_ || n_visitors_ > 0) && !dead()) news_.wait_for(lock, kDeadCheckNs);
  }
  if (dead()) {
    thread_.detach();
  } else {
    thread_.join();
  }
  return true;
}

EngineThread::Visit::Visit(EngineThread& thread)
    : thread_(thread), is_admitted_(thread.in_own_process()) {
  if (!is_admitted_) return;
  const Lock lock(thread_.mutex_);
  ++thread_.n_visitors_;
}

EngineThread::Visit::~Visit() {
  if (!thread_.in_own_process()) return;  // its caller's callback has forked
  const Lock lock(thread_.mutex_);
  --thread_.n_visitors_;
  thread_.news_.notify_all();
}

EngineThread::TextTurn::TextTurn(EngineThread& thread) : thread_(thread) {
  Lock lock(thread_.mutex_);
  begun_ = thread_.may_wait();
  while (begun_ && thread_.text_taken_) {
    thread_.news_.wait_for(lock, kDeadCheckNs);
    begun_ = thread_.may_wait();
  }
  if (begun_ && thread_.text_broken_.load()) begun_ = is_broken();
  if (!begun_) return;
  thread_.text_taken_ = true;
}

EngineThread::TextTurn::~TextTurn() {
  if (!begun_ || !thread_.in_own_process()) return;
  const Lock lock(thread_.mutex_);
  thread_.text_taken_ = false;
  thread_.news_.notify_all();
}

void EngineThread::TextTurn::on_assert(void* self, const AssertSite& site) {
  auto* turn = static_cast<TextTurn*>(self);
  turn->thread_.text_broken_.store(true);
  turn->thread_.tell_host(site);
  turn->thread_.failing_.store({});
  std::longjmp(turn->back_, 1);  // NOLINT(cert-err52-cpp): as in run()
}

Unexpected EngineThread::TextTurn::is_broken() {
  return fail({.status = Status::internal,
               .hint = "an assertion failed in work on a text (see the fatal hook): this engine "
                       "takes no more texts, but tokens; open a new engine"});
}

// True on the engine's thread, and on another whose assertion failed: in the host's callbacks.
bool EngineThread::on_own_thread() const {
  const pthread_t self = pthread_self();
  return pthread_equal(driver_.load(), self) != 0 ||
         (failed_.load() && pthread_equal(failing_.load(), self) != 0);
}

Result<void> EngineThread::may_wait() const {
  if (dead()) return is_dead();
  if (on_own_thread()) {
    return fail({.status = Status::invalid_request,
                 .hint = "called from one of the engine's own callbacks, which it waits for: note "
                         "what happened there and act on it from another thread"});
  }
  if (stopping_) return is_closing();
  if (engine_->device_lost()) return is_lost();
  return {};
}

bool EngineThread::take_and_run_command(Lock& lock) {
  Command* command = first_;
  if (command == nullptr) return false;
  first_ = command->next;
  if (first_ == nullptr) last_ = nullptr;
  lock.unlock();
  const bool lost = engine_->device_lost();
  if (!lost) command->fn(command->context);
  lock.lock();
  note_progress();
  command->lost = lost;
  command->done = true;
  news_.notify_all();
  return true;
}

void EngineThread::note_progress() {
  const u64 now_ns = SystemClock().now_ns();
  const std::span<const Session> sessions = engine_->sessions();
  for (SessionIdx idx = 0; idx < sessions.size(); ++idx) {
    const Session& session = sessions[idx];
    const u32 n_slots = session.sequence.n_slots();
    progress_[idx] = {.state = session.state,
                      .n_ids = session.n_ids,
                      .n_slots = n_slots,
                      .last_error = session.last_error,
                      .reused = session.generation.reused};
    // The last token waits for what comes next.
    if (is_busy(session.state) && n_slots + 1 < session.n_ids) {
      const f64 left_s = std::min(readings_[idx].left_s(now_ns, n_slots, session.n_ids), kLeftMaxS);
      progress_[idx].prefill_left_ns = static_cast<u64>(left_s * 1e9);
    } else {
      readings_[idx].end();
    }
  }
}

Result<EngineThread::Progress> EngineThread::progress(SessionIdx idx) {
  const Lock lock(mutex_);
  TARN_CHECK(may_wait());
  return progress_[idx];
}

void EngineThread::drop_commands() {
  for (Command* command = first_; command != nullptr;) {
    Command* next = command->next;  // its caller may be gone when it is marked
    command->dropped = true;
    command = next;
  }
  first_ = nullptr;
  last_ = nullptr;
}

void EngineThread::loop() {
  set_thread_fatal_sink(&sink_);
  driver_.store(pthread_self());
  Lock lock(mutex_);
  while (!stopping_) {
    if (take_and_run_command(lock)) continue;
    if (!engine_->has_work()) {
      work_.wait(lock);
      continue;
    }
    lock.unlock();
    engine_->step();
    lock.lock();
    note_progress();
    news_.notify_all();
  }
  engine_->at_early_end(nullptr, nullptr);
  drop_commands();
  news_.notify_all();
  while (n_visitors_ > 0) news_.wait(lock);  // they may still look at the engine
  if (at_end_ != nullptr && !dead()) {
    lock.unlock();
    at_end_(at_end_context_);
    lock.lock();
  }
  ended_ = true;
  news_.notify_all();
  set_thread_fatal_sink(nullptr);
}

Result<void> EngineThread::call(void (*fn)(void* context), void* context) {
  Command command{.fn = fn, .context = context};
  Lock lock(mutex_);
  TARN_CHECK(may_wait());
  (last_ != nullptr ? last_->next : first_) = &command;
  last_ = &command;
  work_.notify_one();
  while (!command.done && !command.dropped) {
    news_.wait_for(lock, kDeadCheckNs);
    if (dead() && !command.done) return is_dead();
  }
  if (command.dropped) return is_closing();
  if (command.lost) return is_lost();
  return {};
}

Result<void> EngineThread::next_event(SessionIdx idx, std::atomic<bool>& expected, i32 timeout_ms,
                                      Event* event, std::span<char> text) {
  const Deadline deadline(timeout_ms);
  Lock lock(mutex_);
  for (;;) {
    if (!expected.load()) {
      return fail({.status = Status::invalid_request,
                   .hint = "the session generates nothing: call tarn_session_generate"});
    }
    if (engine_->take_event(idx, event, text)) {
      if (event->type == EventType::done) expected.store(false);  // before anybody begins anew
      work_.notify_one();  // the session may have been waiting for room
      return {};
    }
    TARN_CHECK(may_wait());
    if (deadline.passed()) {
      return fail({.status = Status::would_block, .hint = "no event within the time allowed"});
    }
    news_.wait_for(lock, deadline.next_look_ns());
  }
}

Result<void> EngineThread::wait_computed(SessionIdx idx, i32 timeout_ms) {
  const Deadline deadline(timeout_ms);
  Lock lock(mutex_);
  for (;;) {
    TARN_CHECK(may_wait());
    const Progress& progress = progress_[idx];
    if (progress.state != SessionState::computing) {
      return progress.last_error.as_result();
    }
    if (deadline.passed()) {
      return fail({.status = Status::would_block, .hint = "the session still computes its tokens"});
    }
    news_.wait_for(lock, deadline.next_look_ns());
  }
}

Result<void> EngineThread::request_cancel(SessionIdx idx) {
  if (dead()) return is_dead();
  if (engine_->device_lost()) return is_lost();
  engine_->request_cancel(idx);
  const Lock lock(mutex_);
  work_.notify_one();
  return {};
}

}  // namespace tarn::engine
