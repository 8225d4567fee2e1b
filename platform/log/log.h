// The core never prints: it passes finished lines to the host's function. Lines are bounded, and
// formatted without allocating and without the locale. So formats use integers, %s, %c and %p only
// (%f takes the host's decimal point and may allocate; write "%llu.%02llu"). What a terminal must
// not get becomes '?' (shown_text.h). `Log` is a small value that is passed down.
#pragma once

#include <string_view>

#include "platform/base/types.h"

namespace tarn {

enum class LogLevel : u8 { debug = 0, info = 1, warning = 2, error = 3 };

// `text` is one terminated line without a line break. Called from any thread of the engine.
using LogFn = void (*)(void* context, LogLevel level, const char* text);

class Log {
 public:
  Log() = default;
  Log(LogFn fn, void* context, LogLevel least) : fn_(fn), context_(context), least_(least) {}

  // printf-like, with the compiler's checks; cut at kLineBytesMax.
  void debug(const char* format, ...) const __attribute__((format(printf, 2, 3)));
  void info(const char* format, ...) const __attribute__((format(printf, 2, 3)));
  void warning(const char* format, ...) const __attribute__((format(printf, 2, 3)));
  void error(const char* format, ...) const __attribute__((format(printf, 2, 3)));

  static constexpr u64 kLineBytesMax = 1024;

 private:
  LogFn fn_ = nullptr;
  void* context_ = nullptr;
  LogLevel least_ = LogLevel::info;
};

}  // namespace tarn
