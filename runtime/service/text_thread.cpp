#include "runtime/service/text_thread.h"

#include "runtime/service/text_desk.h"

namespace tarn::service {

Result<void> TextThread::start(std::span<const u32> cpus) {
  sink_ = {.on_fatal = &TextThread::on_assert, .context = this};
  common_.text_ended = false;
  Result<void> started =
      thread_.start({.body = [](void* self) { static_cast<TextThread*>(self)->loop(); },
                     .context = this,
                     .name = "tarn-text",
                     .cpus = cpus});
  if (!started) common_.text_ended = true;
  return started;
}

// A parked thread stands on its own stack, and touches nothing of ours any more.
void TextThread::end() {
  common_.life.is_text_broken() || common_.life.is_dead() ? thread_.detach() : thread_.join();
}

void TextThread::on_assert(void* self, const AssertSite& site) {
  auto* thread = static_cast<TextThread*>(self);
  thread->common_.life.tell_host(site);
  thread->refuse_texts();
}

// The text that is being read is one of them.
void TextThread::refuse_texts() {
  const Lock lock(common_.mutex);
  common_.life.break_text();
  for (Request *r = common_.queue.first(), *next = nullptr; r != nullptr; r = next) {
    next = r->next;
    if (r->state != Request::State::text && r->state != Request::State::reading) continue;
    r->result = has_broken_text();
    if (r->block.n > 0) common_.ids.shrink(&r->block, 0);
    r->state = Request::State::ready;
    if (r->on_engine) continue;  // in its session's order
    common_.queue.remove(r);
    common_.finish(r);
  }
  common_.text_ended = true;
  common_.refresh();
  common_.work.notify_one();
  common_.news.notify_all();
}

void TextThread::read(Request* request, Lock& lock) {
  request->state = Request::State::reading;
  lock.unlock();
  TextDesk desk(common_, *request);
  Result<void> done = request->on_text(desk);
  lock.lock();
  if (const Result<void> goes_on = common_.may_go_on(); !goes_on && request->on_engine) {
    done = goes_on;
  } else if (request->on_engine) {
    request->result = done;
    request->state = Request::State::ready;
    common_.work.notify_one();
    return;
  }
  request->result = done;
  if (request->block.n > 0) common_.ids.shrink(&request->block, 0);
  common_.queue.remove(request);
  common_.finish(request);
  common_.refresh();
}

void TextThread::loop() {
  set_thread_fatal_sink(&sink_);
  common_.life.note_own(Life::Own::text);
  Lock lock(common_.mutex);
  while (!common_.stopping) {
    Request* request = common_.queue.next_text();
    if (request == nullptr) {
      common_.texts.wait(lock);
      continue;
    }
    if (common_.ids.capacity() == 0) {  // the engine has been opened
      const auto& [ids, origins] = common_.engine->text().room();
      common_.ids.init(ids, origins);
    }
    read(request, lock);
  }
  common_.text_ended = true;
  common_.news.notify_all();
  set_thread_fatal_sink(nullptr);
}

}  // namespace tarn::service
