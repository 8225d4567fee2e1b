// The system's mutex and condition variable, without exceptions; waits use the monotonic clock.
// They serve the border between a host's threads and an engine's, not the path of a token.
#pragma once

#include <pthread.h>

#include "platform/base/types.h"

namespace tarn {

class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() { pthread_mutex_destroy(&mutex_); }

 private:
  friend class Lock;
  friend class Condition;
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

// Holds a mutex for its lifetime, except between unlock() and lock().
class Lock {
 public:
  explicit Lock(Mutex& mutex) : mutex_(mutex) { lock(); }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() {
    if (held_) unlock();
  }
  void lock() {
    pthread_mutex_lock(&mutex_.mutex_);
    held_ = true;
  }
  void unlock() {
    held_ = false;
    pthread_mutex_unlock(&mutex_.mutex_);
  }

 private:
  friend class Condition;
  Mutex& mutex_;
  bool held_ = false;
};

class Condition {
 public:
  Condition();
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;
  ~Condition() { pthread_cond_destroy(&condition_); }

  // May return without a notification, like every condition variable.
  void wait(Lock& lock) { pthread_cond_wait(&condition_, &lock.mutex_.mutex_); }
  void wait_for(Lock& lock, u64 timeout_ns);
  void notify_one() { pthread_cond_signal(&condition_); }
  void notify_all() { pthread_cond_broadcast(&condition_); }

 private:
  pthread_cond_t condition_;
};

}  // namespace tarn
