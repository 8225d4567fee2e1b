// A separate stack for a thread of an emulated CTA, on which a host thread can run. The switch is
// written by hand (swapcontext makes a system call each way), and announced to AddressSanitizer and
// ThreadSanitizer, which would report a changed stack pointer.
//
//   thread    a fiber belongs to the host thread that made it
//   stacks    kStackBytes with a guard below; reused, never freed
#pragma once

#include "platform/base/types.h"

namespace tarn::test {

class Fiber {
 public:
  using Body = void (*)(void* context);

  Fiber();
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Sets the body for the next resume(). Not while a body is unfinished.
  void start(Body body, void* context);
  // Runs it until it suspends or ends.
  void resume();
  // Called by the body: returns to the caller of resume().
  void suspend();
  // Called by the body: goes on in another fiber of the same thread, one that is not done. The
  // fiber that suspends next returns to the caller of resume().
  void hand_over(Fiber& next);
  bool done() const { return done_; }

 private:
  static constexpr u64 kStackBytes = 256 * kKiB;
  static constexpr u64 kGuardBytes = 64 * kKiB;  // a whole number of pages on every system
  static void enter();
  void landed();  // this fiber runs again

  u8* stack_ = nullptr;  // lowest usable byte
  u64 colour_bytes_ = 0;
  void* sp_ = nullptr;
  Body body_ = nullptr;
  void* context_ = nullptr;
  bool done_ = true;
  struct Marks {  // the sanitizers', of this stack; unused without them
    void* shadow = nullptr;
    void* tsan = nullptr;
  } marks_;
};

}  // namespace tarn::test
