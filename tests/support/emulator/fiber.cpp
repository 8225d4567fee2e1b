#include "tests/support/emulator/fiber.h"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__)
#define TARN_FIBER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TARN_FIBER_ASAN 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TARN_FIBER_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TARN_FIBER_TSAN 1
#endif
#endif
#ifdef TARN_FIBER_ASAN
#include <sanitizer/asan_interface.h>
#endif
#ifdef TARN_FIBER_TSAN
#include <sanitizer/tsan_interface.h>
#endif

// Saves what the ABI lets a callee keep on the running stack and its pointer at *save; goes on from
// the same of another stack.
extern "C" void tarn_fiber_switch(void** save, void* load);

#if defined(__x86_64__)
__asm__(
    ".text\n.globl tarn_fiber_switch\n.hidden tarn_fiber_switch\n"
    ".type tarn_fiber_switch,@function\ntarn_fiber_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n.size tarn_fiber_switch,.-tarn_fiber_switch\n");
namespace {
constexpr tarn::u64 kEntryWord = 6;   // which of the words is where to go on
constexpr tarn::u64 kFrameWords = 8;  // a function begins 8 bytes off a multiple of 16
}  // namespace
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl tarn_fiber_switch\n.hidden tarn_fiber_switch\n"
    ".type tarn_fiber_switch,%function\ntarn_fiber_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n  stp d12, d13, [sp, #128]\n"
    "  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n  ldp d12, d13, [sp, #128]\n"
    "  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n  ret\n.size tarn_fiber_switch,.-tarn_fiber_switch\n");
namespace {
constexpr tarn::u64 kEntryWord = 11;  // x30
constexpr tarn::u64 kFrameWords = 20;
}  // namespace
#else
#error "write the switch of stacks for this architecture"
#endif

namespace tarn::test {
namespace {
// The host's stack, to which the fibers of this thread return. One body runs at a time.
struct Caller {
  void* sp = nullptr;
  // The sanitizers' marks.
  void* shadow = nullptr;
  const void* bottom = nullptr;
  u64 n_bytes = 0;
  void* tsan = nullptr;
};
thread_local Caller caller;
// Which fiber runs next, for its entry function: no argument survives the first switch.
thread_local Fiber* entered = nullptr;
thread_local bool by_caller = false;  // whether the host has resumed it, or another fiber

// Stacks lie a multiple of a page apart, so their tops would all share one set of the caches. Each
// begins some lines lower than the one made before it.
constexpr u64 kColours = 61;
constexpr u64 kColourBytes = 192;
thread_local u64 n_fibers = 0;
}  // namespace

Fiber::Fiber() {
  void* bytes = mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (bytes == MAP_FAILED || mprotect(bytes, kGuardBytes, PROT_NONE) != 0) {
    std::fprintf(stderr, "no memory for a fiber's stack\n");
    std::abort();
  }
  stack_ = static_cast<u8*>(bytes) + kGuardBytes;
  colour_bytes_ = n_fibers++ % kColours * kColourBytes;
#ifdef TARN_FIBER_TSAN
  marks_.tsan = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef TARN_FIBER_TSAN
  __tsan_destroy_fiber(marks_.tsan);
#endif
#ifdef TARN_FIBER_ASAN
  // A body that was cut short leaves the marks of its frames, and they outlive munmap: the next
  // owner of these addresses would be said to write to them.
  __asan_unpoison_memory_region(stack_, kStackBytes);
#endif
  munmap(stack_ - kGuardBytes, kGuardBytes + kStackBytes);
}

void Fiber::start(Body body, void* context) {
  body_ = body;
  context_ = context;
  done_ = false;
  u64* top = reinterpret_cast<u64*>(stack_ + kStackBytes - colour_bytes_) - kFrameWords;
  for (u64 i = 0; i < kFrameWords; ++i) top[i] = 0;
  top[kEntryWord] = reinterpret_cast<u64>(&Fiber::enter);
  sp_ = top;
  marks_.shadow = nullptr;
}

void Fiber::resume() {
  entered = this;
  by_caller = true;
#ifdef TARN_FIBER_TSAN
  caller.tsan = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(marks_.tsan, 0);
#endif
#ifdef TARN_FIBER_ASAN
  __sanitizer_start_switch_fiber(&caller.shadow, stack_, kStackBytes);
#endif
  tarn_fiber_switch(&caller.sp, sp_);
#ifdef TARN_FIBER_ASAN
  __sanitizer_finish_switch_fiber(caller.shadow, nullptr, nullptr);
#endif
}

void Fiber::suspend() {
#ifdef TARN_FIBER_TSAN
  __tsan_switch_to_fiber(caller.tsan, 0);
#endif
#ifdef TARN_FIBER_ASAN
  __sanitizer_start_switch_fiber(done_ ? nullptr : &marks_.shadow, caller.bottom, caller.n_bytes);
#endif
  tarn_fiber_switch(&sp_, caller.sp);
  landed();
}

void Fiber::hand_over(Fiber& next) {
  entered = &next;
  by_caller = false;
#ifdef TARN_FIBER_TSAN
  __tsan_switch_to_fiber(next.marks_.tsan, 0);
#endif
#ifdef TARN_FIBER_ASAN
  __sanitizer_start_switch_fiber(&marks_.shadow, next.stack_, kStackBytes);
#endif
  tarn_fiber_switch(&sp_, next.sp_);
  landed();
}

void Fiber::landed() {
#ifdef TARN_FIBER_ASAN
  const void* bottom = nullptr;
  u64 n_bytes = 0;
  __sanitizer_finish_switch_fiber(marks_.shadow, &bottom, &n_bytes);
  if (!by_caller) return;
  caller.bottom = bottom;
  caller.n_bytes = n_bytes;
#endif
}

void Fiber::enter() {
  Fiber& self = *entered;
  self.landed();
  self.body_(self.context_);
  self.done_ = true;
  self.suspend();
  std::abort();  // a fiber that is done is not resumed
}

}  // namespace tarn::test
