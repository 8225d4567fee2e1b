#include "tools/tarnd/log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <ctime>
#include <deque>
#include <iterator>
#include <mutex>
#include <optional>
#include <utility>

#include "platform/clock/clock.h"
#include "tools/support/escaped.h"
#include "tools/support/utc.h"

namespace tarn::daemon {
namespace {

struct Row {
  const char* name;
  LogLevel level;
  bool is_bounded = false;  // one line a second
};
constexpr Row kRows[] = {
    {"starting", LogLevel::info},
    {"listening", LogLevel::info},
    {"ready", LogLevel::info},
    {"load_failed", LogLevel::error},
    {"request", LogLevel::info},
    {"client_gone", LogLevel::info},
    {"peer_refused", LogLevel::warning, true},
    {"connections_full", LogLevel::warning, true},
    {"accept_failed", LogLevel::warning, true},
    {"network", LogLevel::warning, true},
    {"no_keys", LogLevel::warning},
    {"chunks_in_full", LogLevel::warning, true},
    {"engine", LogLevel::info},
    {"engine_ended", LogLevel::error},
    {"reloaded", LogLevel::info},
    {"reload_failed", LogLevel::error},
    {"stopping", LogLevel::info},
    {"stopped", LogLevel::info},
};
static_assert(std::size(kRows) == kEvents);

std::atomic<LogLevel> least{LogLevel::info};
std::atomic<bool> has_prefixes{false};

// The lines of one event that is bounded.
struct Bound {
  std::mutex mutex;
  u64 last_ns = 0;  // 0: there was none
  u64 n_left_out = 0;

  // How many lines were left out since the last one; none: this one is left out, too.
  std::optional<u64> pass() {
    constexpr u64 kSecond_ns = 1'000'000'000;
    const u64 now_ns = SystemClock().now_ns();
    const std::lock_guard lock(mutex);
    if (last_ns > 0 && now_ns - last_ns < kSecond_ns) {
      ++n_left_out;
      return std::nullopt;
    }
    last_ns = now_ns;
    return std::exchange(n_left_out, 0);
  }
};
std::array<Bound, kEvents>& bounds() {
  static std::array<Bound, kEvents> all;
  return all;
}

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
void set_journal_prefixes(bool on) { has_prefixes.store(on, std::memory_order_relaxed); }

bool is_journal_stream(const char* journal_stream) {
  struct stat facts {};
  if (journal_stream == nullptr || fstat(STDERR_FILENO, &facts) != 0) return false;
  return journal_stream == std::to_string(facts.st_dev) + ":" + std::to_string(facts.st_ino);
}

const char* line_prefix(LogLevel level) {
  constexpr const char* kPriorities[] = {"<7>", "<6>", "<4>", "<3>"};  // syslog(3)
  if (!has_prefixes.load(std::memory_order_relaxed)) return "";
  return kPriorities[static_cast<u32>(level)];
}

bool logs(LogLevel level) { return level >= least.load(std::memory_order_relaxed); }

std::string log_value(std::string_view value) {
  const bool is_plain = !value.empty() && std::ranges::all_of(value, [](char c) {
    return c > ' ' && c <= '~' && c != '"' && c != '=' && c != '\\';
  });
  if (is_plain) return std::string(value);
  std::string out = "\"";
  while (!value.empty()) {
    const size_t quote = std::min(value.find('"'), value.size());
    out += tools::escaped(value.substr(0, quote));
    if (quote < value.size()) out += "\\\"";
    value.remove_prefix(std::min(quote + 1, value.size()));
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
  const Row& row = kRows[static_cast<u32>(event)];
  const std::optional<u64> n_left_out =
      row.is_bounded ? bounds()[static_cast<u32>(event)].pass() : std::optional<u64>(0);
  if (!n_left_out) return;
  std::string text = row.name;
  const auto append = [&](const LogPair& pair) {
    text.append(" ").append(pair.key).append("=") += log_value(pair.value);
  };
  std::ranges::for_each(pairs, append);
  std::ranges::for_each(more, append);
  if (*n_left_out > 0) append({"more", std::to_string(*n_left_out)});
  if (level >= LogLevel::warning) record(text);
  if (!logs(level)) return;
  const std::string line = line_prefix(level) + ("time=" + tools::utc_now()) +
                           " level=" + kLogLevelNames[static_cast<u32>(level)] + " event=" + text +
                           '\n';
  // One write, so that lines of several threads stay whole. A log that cannot be written stops
  // nothing.
  [[maybe_unused]] const ssize_t n = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace tarn::daemon
