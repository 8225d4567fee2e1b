#include "tools/tarnd/loop_thread.h"

#include "tools/support/exit_code.h"

namespace tarn::daemon {

LoopThread::LoopThread(event_base* base, std::function<void()> on_end)
    : on_end_(std::move(on_end)) {
  tools::value_of(ended_.open());
  event_ = event_new(base, ended_.fd(), EV_READ | EV_PERSIST, on_ready, this);
  if (event_ == nullptr || event_add(event_, nullptr) != 0) {
    throw tools::Failure{tools::kExitIo, "libevent gives no event"};
  }
}

LoopThread::~LoopThread() {
  join();
  event_free(event_);
}

void LoopThread::start(std::function<void()> work) {
  thread_ = std::thread([this, work = std::move(work)] {
    work();
    ended_.set();
  });
}

void LoopThread::join() {
  if (thread_.joinable()) thread_.join();
}

void LoopThread::on_ready(evutil_socket_t, short, void* self) {
  LoopThread& thread = *static_cast<LoopThread*>(self);
  thread.ended_.clear();
  if (!thread.is_busy()) return;
  thread.join();
  thread.on_end_();
}

}  // namespace tarn::daemon
