// Whether an engine's threads can still answer, and who may wait for them.
//
//   thread   any; nothing here waits
//   dead     an assertion of the engine's thread or of a worker has failed; its thread is parked
//   broken   one of the text thread has failed; that thread is parked, and the engine goes on
#pragma once

#include <array>
#include <atomic>

#include "platform/base/assert.h"
#include "platform/base/result.h"
#include "platform/cpu/os_thread.h"
#include "platform/cpu/process.h"

namespace tarn::service {

using FatalFn = void (*)(void* context, const AssertSite& site);

Unexpected is_dead();
Unexpected is_lost();
Unexpected is_closing();
Unexpected has_broken_text();

class Life {
 public:
  // Where failed assertions are told.
  void set_hook(FatalFn on_fatal, void* context) {
    on_fatal_ = on_fatal;
    fatal_context_ = context;
  }
  // Calls the hook for the first failure alone. Callers learn of the failure afterwards: what the
  // hook wrote is there when they read it.
  void tell_host(const AssertSite& site);
  void die() { dead_.store(true, std::memory_order_release); }
  bool is_dead() const { return dead_.load(std::memory_order_acquire); }
  void break_text() { text_broken_.store(true); }
  bool is_text_broken() const { return text_broken_.load(); }

  enum class Own : u8 { engine, text };
  // The calling thread is one of the two.
  void note_own(Own which) { own_[static_cast<u8>(which)].store(pthread_self()); }
  // True on those, and on another whose assertion failed: in the host's callbacks.
  bool is_on_own_thread() const;
  bool is_in_own_process() const { return process_ == process_id(); }

 private:
  u64 process_ = process_id();
  FatalFn on_fatal_ = nullptr;
  void* fatal_context_ = nullptr;
  std::atomic<bool> failed_{false};  // an assertion failed; its hook may still run
  std::atomic<bool> dead_{false};    // the hook has returned
  std::atomic<bool> text_broken_{false};
  std::array<std::atomic<pthread_t>, 2> own_{};
  std::atomic<pthread_t> failing_{};  // whose assertion failed
};

}  // namespace tarn::service
