#include "runtime/service/engine_thread.h"

#include <algorithm>

namespace tarn::service {
namespace {

constexpr u32 kCallsAStep = 64;  // so many at most keep a step waiting

}  // namespace

const FatalSink* EngineThread::sink() {
  sink_ = {.on_fatal = &EngineThread::on_assert, .context = this};
  return &sink_;
}

void EngineThread::on_assert(void* self, const AssertSite& site) {
  Common& common = static_cast<EngineThread*>(self)->common_;
  common.life.tell_host(site);
  common.life.die();
  common.outbox.signal_end();
}

Result<void> EngineThread::start(std::span<const u32> cpus) {
  common_.engine->at_early_end(
      [](void* self) {
        auto* thread = static_cast<EngineThread*>(self);
        const Lock lock(thread->common_.mutex);
        thread->note();
      },
      this);
  return thread_.start({.body = [](void* self) { static_cast<EngineThread*>(self)->loop(); },
                        .context = this,
                        .name = "tarn-engine",
                        .cpus = cpus});
}

// After each step and each call.
void EngineThread::note() {
  common_.board.note(common_.engine->sessions().all(), SystemClock().now_ns());
  if (common_.engine->device_lost()) common_.drop_all(is_lost().value());
  common_.settle_waits();
  common_.refresh();
  common_.news.notify_all();
}

bool EngineThread::run_call(Lock& lock) {
  Request* request = common_.queue.take_ready();
  if (request == nullptr) return false;
  if (request->result && request->session != kNoSession) {
    const SessionRow& row = common_.board.of(request->session);
    if (row.is_free() || row.epoch != request->epoch) request->result = is_destroyed();
  }
  if (request->result && request->is_behind_failed) request->result = is_behind_failed();
  if (request->result) run(request, lock);
  if (request->block.n > 0) {
    common_.ids.give_back(request->block);
    common_.texts.notify_one();
  }
  common_.finish(request);
  note();
  return true;
}

void EngineThread::run(Request* request, Lock& lock) {
  const Ids ids = common_.ids.of(request->block);
  request->state = Request::State::running;
  common_.queue.set_running(request);
  lock.unlock();
  Result<void> done = request->on_engine(*common_.engine, ids);
  lock.lock();
  common_.queue.set_running(nullptr);
  request->result = done;
  if (done && request->is_cancelled) common_.engine->sessions().request_cancel(request->session);
}

void EngineThread::wait_for_work(Lock& lock) {
  const u64 of_calls = common_.queue.next_deadline_ns();
  const u64 of_answers = common_.engine->next_deadline_ns();
  const u64 deadline_ns =
      of_calls == 0 || of_answers == 0 ? of_calls + of_answers : std::min(of_calls, of_answers);
  if (deadline_ns == 0) return common_.work.wait(lock);
  const u64 now_ns = SystemClock().now_ns();
  if (now_ns < deadline_ns) common_.work.wait_for(lock, deadline_ns - now_ns);
  common_.settle_waits();
}

void EngineThread::loop() {
  set_thread_fatal_sink(&sink_);
  common_.life.note_own(Life::Own::engine);
  Lock lock(common_.mutex);
  note();
  while (!common_.stopping) {
    u32 n_calls = 0;
    while (n_calls < kCallsAStep && !common_.stopping && run_call(lock)) ++n_calls;
    if (!common_.engine->has_work()) {
      if (n_calls == 0) wait_for_work(lock);
      continue;
    }
    lock.unlock();
    common_.engine->step();
    lock.lock();
    note();
  }
  common_.engine->at_early_end(nullptr, nullptr);
  common_.drop_all(is_closing().value());
  common_.refresh();
  common_.news.notify_all();
  // They may still look at the engine.
  while (common_.n_visitors > 0 || !common_.text_ended) common_.news.wait(lock);
  if (at_end_ != nullptr && !common_.life.is_dead()) {
    lock.unlock();
    at_end_(at_end_context_);
    lock.lock();
  }
  common_.engine_ended = true;
  common_.news.notify_all();
  set_thread_fatal_sink(nullptr);
}

}  // namespace tarn::service
