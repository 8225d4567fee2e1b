// The daemon's log: one line of key=value pairs per event on standard error, from a table of
// events. No text of a user is in any: no prompt, no answer, no path beside the known ones.
//
// An event that a peer or a lack of resources can repeat at will writes at most one line a second;
// `more=N` in its next line counts those that were left out. Where standard error is systemd's
// journal, each line begins with its priority (sd-daemon(3)).
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/types.h"

namespace tarn::daemon {

enum class LogLevel : u8 { debug, info, warning, error };
inline constexpr const char* kLogLevelNames[] = {"debug", "info", "warning", "error"};

enum class Event : u8 {
  starting,
  listening,
  ready,
  load_failed,
  request,
  client_gone,
  peer_refused,
  connections_full,
  accept_failed,
  network,
  no_keys,
  chunks_in_full,
  engine,
  engine_ended,
  reloaded,
  reload_failed,
  stopping,
  stopped,
};
inline constexpr u32 kEvents = 18;
const char* event_name(Event event);

struct LogPair {
  std::string_view key;
  std::string value;
};

// From any thread.
void set_log_level(LogLevel level);
bool logs(LogLevel level);
// Whether standard error is the stream that JOURNAL_STREAM names.
bool is_journal_stream(const char* journal_stream);
void set_journal_prefixes(bool on);
// "<6>" and so on in the journal, else "".
const char* line_prefix(LogLevel level);
void log_event(Event event, std::initializer_list<LogPair> pairs,
               const std::vector<LogPair>& more = {});
// With another level than the event's own.
void log_event(Event event, LogLevel level, std::initializer_list<LogPair> pairs,
               const std::vector<LogPair>& more = {});

// The last warnings and errors, newest first.
struct LogRecord {
  u64 at_s = 0;  // since 1970
  std::string text;
};
inline constexpr u32 kLogRecordsMax = 8;
std::vector<LogRecord> last_errors();

// A value as it stands in a line: in quotes, with escapes, if it has blanks, quotes or other bytes
// than printable ASCII. Letters of other scripts stay.
std::string log_value(std::string_view value);

}  // namespace tarn::daemon
