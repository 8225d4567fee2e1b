#include "platform/log/log.h"

#include <cstdarg>
#include <cstdio>

#include "platform/base/shown_text.h"

namespace tarn {
namespace {

__attribute__((format(printf, 4, 0))) void write_line(LogFn fn, void* context, LogLevel level,
                                                      const char* format, std::va_list arguments) {
  char line[Log::kLineBytesMax];
  if (std::vsnprintf(line, sizeof line, format, arguments) < 0) return;
  // A name from a hostile file must not break the line or control a terminal.
  append_shown(line, 0, sizeof line, line);
  fn(context, level, line);
}

}  // namespace

// The body is repeated four times: a variadic function cannot pass its arguments on to another one.
#define TARN_LOG_BODY(level)                             \
  if (fn_ == nullptr || (level) < least_) return;        \
  std::va_list arguments;                                \
  va_start(arguments, format);                           \
  write_line(fn_, context_, (level), format, arguments); \
  va_end(arguments)

void Log::debug(const char* format, ...) const { TARN_LOG_BODY(LogLevel::debug); }
void Log::info(const char* format, ...) const { TARN_LOG_BODY(LogLevel::info); }
void Log::warning(const char* format, ...) const { TARN_LOG_BODY(LogLevel::warning); }
void Log::error(const char* format, ...) const { TARN_LOG_BODY(LogLevel::error); }

#undef TARN_LOG_BODY

}  // namespace tarn
