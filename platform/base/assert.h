// TARN_ASSERT is for our own bugs, stays on in release and never returns into the broken code. The
// library must not end its host's process, so a failed assertion calls the thread's sink. The sink
// of an engine's threads marks the engine dead, calls the host's fatal hook and parks the thread
// for ever. A thread without a sink (a test, a tool's main thread) traps.
#pragma once

#include "platform/base/types.h"

namespace tarn {

struct AssertSite {
  const char* condition;
  const char* file;
  u32 line;
};

// on_fatal() must not return; if it does, the thread is parked all the same.
struct FatalSink {
  void (*on_fatal)(void* context, const AssertSite& site) = nullptr;
  void* context = nullptr;
};

// Sets this thread's sink, which is borrowed until it is replaced; nullptr removes it. Returns the
// one before.
const FatalSink* set_thread_fatal_sink(const FatalSink* sink);

[[noreturn]] void assert_failed(const AssertSite& site);

}  // namespace tarn

#define TARN_ASSERT(condition)                                 \
  do {                                                         \
    if (__builtin_expect(!(condition), 0)) {                   \
      ::tarn::assert_failed({#condition, __FILE__, __LINE__}); \
    }                                                          \
  } while (false)

#ifdef TARN_DEBUG
#define TARN_DEBUG_ASSERT(condition) TARN_ASSERT(condition)
#else
#define TARN_DEBUG_ASSERT(condition) static_cast<void>(0)
#endif
