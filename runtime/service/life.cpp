#include "runtime/service/life.h"

#include <algorithm>

namespace tarn::service {

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

Unexpected has_broken_text() {
  return fail({.status = Status::internal,
               .hint = "an assertion failed in work on a text (see the fatal hook): this engine "
                       "takes no more texts, but tokens; open a new engine"});
}

void Life::tell_host(const AssertSite& site) {
  if (failed_.exchange(true)) return;
  failing_.store(pthread_self());
  if (on_fatal_ != nullptr) on_fatal_(fatal_context_, site);
}

bool Life::is_on_own_thread() const {
  const pthread_t self = pthread_self();
  const auto is_self = [self](const std::atomic<pthread_t>& thread) {
    return pthread_equal(thread.load(), self) != 0;
  };
  return std::ranges::any_of(own_, is_self) || (failed_.load() && is_self(failing_));
}

}  // namespace tarn::service
