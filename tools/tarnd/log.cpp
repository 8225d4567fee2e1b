#include "tools/tarnd/log.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <deque>
#include <iterator>
#include <mutex>

#include "tools/support/utc.h"

namespace tarn::daemon {
namespace {

struct Row {
  const char* name;
  LogLevel level;
};
constexpr Row kRows[] = {
    {"starting", LogLevel::info},        {"listening", LogLevel::info},
    {"ready", LogLevel::info},           {"load_failed", LogLevel::error},
    {"request", LogLevel::info},         {"client_gone", LogLevel::info},
    {"peer_refused", LogLevel::warning}, {"connections_full", LogLevel::warning},
    {"engine", LogLevel::info},          {"engine_ended", LogLevel::error},
    {"reloaded", LogLevel::info},        {"reload_failed", LogLevel::error},
    {"stopping", LogLevel::info},        {"stopped", LogLevel::info},
};
static_assert(std::size(kRows) == kEvents);

std::atomic<LogLevel> least{LogLevel::info};

struct Records {
  std::mutex mutex;
  std::deque<LogRecord> all;
};
Records& records() {
  static Records one;
  return one;
}

void record(std::string text) {
  Records& to = records();
  const std::lock_guard lock(to.mutex);
  to.all.push_front({static_cast<u64>(std::time(nullptr)), std::move(text)});
  if (to.all.size() > kLogRecordsMax) to.all.pop_back();
}

}  // namespace

std::vector<LogRecord> last_errors() {
  Records& from = records();
  const std::lock_guard lock(from.mutex);
  return {from.all.begin(), from.all.end()};
}

const char* event_name(Event event) { return kRows[static_cast<u32>(event)].name; }

void set_log_level(LogLevel level) { least.store(level, std::memory_order_relaxed); }
bool logs(LogLevel level) { return level >= least.load(std::memory_order_relaxed); }

std::string log_value(std::string_view value) {
  const bool is_plain = !value.empty() && std::ranges::all_of(value, [](char c) {
    return c > ' ' && c <= '~' && c != '"' && c != '=' && c != '\\';
  });
  if (is_plain) return std::string(value);
  constexpr const char* kDigits = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : value) {
    const u8 byte = static_cast<u8>(c);
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (byte < ' ' || byte > '~') {
      out += {'\\', 'x', kDigits[byte >> 4], kDigits[byte & 15]};
    } else {
      out += c;
    }
  }
  return out + '"';
}

void log_event(Event event, std::initializer_list<LogPair> pairs,
               const std::vector<LogPair>& more) {
  log_event(event, kRows[static_cast<u32>(event)].level, pairs, more);
}

void log_event(Event event, LogLevel level, std::initializer_list<LogPair> pairs,
               const std::vector<LogPair>& more) {
  if (!logs(level) && level < LogLevel::warning) return;
  std::string text = event_name(event);
  const auto append = [&](const LogPair& pair) {
    text.append(" ").append(pair.key).append("=") += log_value(pair.value);
  };
  std::ranges::for_each(pairs, append);
  std::ranges::for_each(more, append);
  if (level >= LogLevel::warning) record(text);
  if (!logs(level)) return;
  const std::string line = "time=" + tools::utc_now() +
                           " level=" + kLogLevelNames[static_cast<u32>(level)] + " event=" + text +
                           '\n';
  // One write, so that lines of several threads stay whole. A log that nobody can read stops
  // nothing.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tarn::daemon
