#include "tools/tarnd/event_loop.h"

#include <unistd.h>

#include <algorithm>
#include <memory>

#include "tools/support/exit_code.h"
#include "tools/tarnd/log.h"

namespace tarn::daemon {
namespace {

void on_log(int severity, const char* text) {
  static_assert(EVENT_LOG_DEBUG == 0 && EVENT_LOG_ERR == 3);  // as LogLevel
  log_event(Event::network, static_cast<LogLevel>(std::clamp(severity, 0, 3)), {{"text", text}});
}

// libevent would exit(1), and its caller expects no return.
void on_fatal(int error) {
  log_event(Event::stopped, LogLevel::error,
            {{"code", std::to_string(tools::kExitInternal)},
             {"text", "libevent cannot continue: error " + std::to_string(error)}});
  _exit(tools::kExitInternal);
}

}  // namespace

EventLoop::EventLoop() {
  event_set_log_callback(on_log);
  event_set_fatal_callback(on_fatal);
  const std::unique_ptr<event_config, void (*)(event_config*)> config(event_config_new(),
                                                                      event_config_free);
  if (config != nullptr) {
    event_config_set_flag(config.get(), EVENT_BASE_FLAG_IGNORE_ENV);
    base = event_base_new_with_config(config.get());
  }
  if (base == nullptr) throw tools::Failure{tools::kExitIo, "libevent gives no event loop"};
}

EventLoop::~EventLoop() { event_base_free(base); }

}  // namespace tarn::daemon
