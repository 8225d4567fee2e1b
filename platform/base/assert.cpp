#include "platform/base/assert.h"

#include <unistd.h>

#include <utility>

namespace tarn {
namespace {
// The core's only thread-local state: an assertion deep in a kernel has no engine at hand.
thread_local const FatalSink* t_sink = nullptr;
}  // namespace

const FatalSink* set_thread_fatal_sink(const FatalSink* sink) {
  return std::exchange(t_sink, sink);
}

void assert_failed(const AssertSite& site) {
  const FatalSink* sink = t_sink;
  if (sink == nullptr || sink->on_fatal == nullptr) __builtin_trap();
  t_sink = nullptr;  // an assertion inside the sink must not come back here
  sink->on_fatal(sink->context, site);
  for (;;) pause();
}

}  // namespace tarn
