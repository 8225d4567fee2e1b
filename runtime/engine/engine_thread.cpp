#include "runtime/engine/engine_thread.h"

#include <algorithm>
#include <chrono>

namespace tarn::engine {
namespace {

// A thread that died of an assertion cannot wake those who wait for it; they look for themselves.
constexpr auto kDeadCheck = std::chrono::milliseconds(50);

Unexpected is_dead() {
  return fail({.status = Status::internal,
               .hint =
                   "the engine is dead: one of its assertions failed (see the fatal hook); open a "
                   "new engine"});
}

// A timeout in milliseconds, negative for none, cut into looks at whether the engine still lives.
class Deadline {
 public:
  explicit Deadline(i32 timeout_ms)
      : never_(timeout_ms < 0), at_(SteadyClock::now() + std::chrono::milliseconds(timeout_ms)) {}
  bool passed() const { return !never_ && SteadyClock::now() >= at_; }
  std::chrono::nanoseconds next_look() const {
    const std::chrono::nanoseconds look = kDeadCheck;
    return never_ ? look : std::min<std::chrono::nanoseconds>(look, at_ - SteadyClock::now());
  }

 private:
  using SteadyClock = std::chrono::steady_clock;
  bool never_;
  SteadyClock::time_point at_;
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
  const bool was_dead = thread->dead_.exchange(true, std::memory_order_acq_rel);
  if (!was_dead && thread->on_fatal_ != nullptr) thread->on_fatal_(thread->fatal_context_, site);
}

Result<void> EngineThread::start(Engine* engine, std::span<const u32> cpus) {
  engine_ = engine;
  return thread_.start({.body = [](void* self) { static_cast<EngineThread*>(self)->loop(); },
                        .context = this,
                        .name = "tarn-engine",
                        .cpus = cpus});
}

void EngineThread::stop() {
  if (!thread_.running()) return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  if (dead()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

bool EngineThread::take_and_run_command(std::unique_lock<std::mutex>& lock) {
  Command* command = first_;
  if (command == nullptr) return false;
  first_ = command->next;
  if (first_ == nullptr) last_ = nullptr;
  lock.unlock();
  command->fn(command->context);
  lock.lock();
  command->done = true;
  news_.notify_all();
  return true;
}

void EngineThread::loop() {
  set_thread_fatal_sink(&sink_);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (take_and_run_command(lock)) continue;
    if (!engine_->has_work()) {
      work_.wait(lock);
      continue;
    }
    lock.unlock();
    engine_->step();
    lock.lock();
    news_.notify_all();
  }
  set_thread_fatal_sink(nullptr);
}

Result<void> EngineThread::call(void (*fn)(void* context), void* context) {
  Command command{.fn = fn, .context = context};
  std::unique_lock<std::mutex> lock(mutex_);
  if (dead()) return is_dead();
  (last_ != nullptr ? last_->next : first_) = &command;
  last_ = &command;
  work_.notify_one();
  while (!command.done) {
    news_.wait_for(lock, kDeadCheck);
    if (dead() && !command.done) return is_dead();
  }
  return {};
}

Result<void> EngineThread::next_event(SessionIdx idx, i32 timeout_ms, Event* event,
                                      std::span<char> text) {
  const Deadline deadline(timeout_ms);
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    if (engine_->take_event(idx, event, text)) {
      work_.notify_one();  // the session may have been waiting for room
      return {};
    }
    if (dead()) return is_dead();
    if (deadline.passed()) {
      return fail({.status = Status::would_block, .hint = "no event within the time allowed"});
    }
    news_.wait_for(lock, deadline.next_look());
  }
}

Result<void> EngineThread::wait_computed(SessionIdx idx, i32 timeout_ms) {
  const Deadline deadline(timeout_ms);
  for (;;) {
    bool computing = false;
    TARN_CHECK(call([&]() -> Result<void> {
      computing = engine_->session_state(idx).state == SessionState::computing;
      return {};
    }));
    if (!computing) return {};
    if (deadline.passed()) {
      return fail({.status = Status::would_block, .hint = "the session still computes its tokens"});
    }
    std::unique_lock<std::mutex> lock(mutex_);
    news_.wait_for(lock, deadline.next_look());
  }
}

void EngineThread::request_cancel(SessionIdx idx) {
  engine_->request_cancel(idx);
  const std::lock_guard<std::mutex> lock(mutex_);
  work_.notify_one();
}

}  // namespace tarn::engine
