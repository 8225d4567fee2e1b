#include "tools/tarnd/settings.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "runtime/text/unicode.h"
#include "tools/support/exit_code.h"
#include "tools/tarnd/http_head.h"
#include "tools/tarnd/log.h"

namespace tarn::daemon {
namespace {

[[noreturn]] void refuse(const std::string& key, const std::string& why) {
  throw tools::Failure{tools::kExitRefused, "daemon." + key + ": " + why};
}

// As TOML, in the characters that checked_toml() takes.
std::string quoted(const std::string& text) {
  const auto is_plain = [](char c) { return c >= ' ' && c <= '~' && c != '\''; };
  if (std::ranges::all_of(text, is_plain)) return "'" + text + "'";
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const text::CodePoint point = text::decode_lenient(text, at);
    const bool stays = is_plain(text[at]) && text[at] != '"' && text[at] != '\\';
    char escape[12];
    std::snprintf(escape, sizeof escape, "\\U%08x", point.value);
    out += stays ? text.substr(at, 1) : escape;
    at += point.n_bytes;
  }
  return out + '"';
}

void check_host(const std::string& host) {
  if (host.empty() || host.find_first_of(":/* ") != std::string::npos) {
    refuse("hosts", quoted(host) + ": give a name alone, without a port or a scheme, as in tarn");
  }
}

void check_origin(const std::string& origin) {
  const size_t scheme_end = origin.find("://");
  const bool has_name = scheme_end != std::string::npos && scheme_end > 0 &&
                        origin.size() > scheme_end + 3 &&
                        origin.find_first_of("/*?#@\\ ", scheme_end + 3) == std::string::npos;
  if (has_name || origin == "null") return;
  refuse("origins", quoted(origin) +
                        ": give scheme, name and port as browsers send them, without a path, as in "
                        "http://localhost:3000");
}

struct TomlLines {
  std::string out = "[daemon]\n";
  template <class Number>
  void operator()(const char* key, const Number& value, u64, u64, bool, const char*) {
    line(key, std::to_string(value));
  }
  void operator()(const char* key, const bool& value, bool, const char*) {
    line(key, value ? "true" : "false");
  }
  void operator()(const char* key, const std::string& value, bool, const char*) {
    line(key, quoted(value));
  }
  void operator()(const char* key, const std::vector<std::string>& values, bool, const char*) {
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : ", ") + quoted(value);
    line(key, "[" + list + "]");
  }
  void line(const char* key, const std::string& value) {
    out.append(key).append(" = ").append(value) += '\n';
  }
};

}  // namespace

bool octal_mode(u32 digits, u32* mode) {
  *mode = 0;
  for (u32 place = 1; digits > 0; digits /= 10, place *= 8) {
    if (digits % 10 > 7) return false;
    *mode += digits % 10 * place;
  }
  return true;
}

u64 network_bytes_least(const Settings& s) {
  // A connection's bufferevent, events and bookkeeping; what is read ahead; one body with what is
  // made of it; and half a MiB for the loop itself.
  constexpr u64 kConnectionBytes = 4096, kBodyFactor = 4, kLoopBytes = u64{512} << 10;
  return s.connections_max * (kConnectionBytes + 2 * kHeadBytesMax) +
         s.body_bytes_max * kBodyFactor + s.unread_bytes_max + kLoopBytes;
}

void check_settings(const Settings& s) {
  u32 mode = 0;
  if (!octal_mode(s.socket_mode, &mode)) refuse("socket_mode", "give octal digits, as in 660");
  if (std::ranges::find(kLogLevelNames, s.log_level) == std::end(kLogLevelNames)) {
    refuse("log_level", "give debug, info, warning or error");
  }
  const bool has_tcp = std::ranges::any_of(
      s.listen, [](const std::string& address) { return address.starts_with("tcp://"); });
  if (has_tcp && s.keys_file.empty() && !s.insecure_no_key) {
    refuse("keys_file",
           "tcp:// needs keys: name a file with LABEL KEY a line; on 127.0.0.1 --insecure-no-key "
           "serves every user and program of this machine");
  }
  if (s.insecure_no_key && !s.keys_file.empty()) {
    refuse("keys_file", "--insecure-no-key takes requests without a key: give one of the two");
  }
  for (const std::string& host : s.hosts) check_host(host);
  for (const std::string& origin : s.origins) check_origin(origin);
  if (s.memory_bytes < network_bytes_least(s)) {
    refuse("memory_bytes", std::to_string(network_bytes_least(s)) +
                               " bytes at least are needed for daemon.connections_max and "
                               "daemon.body_bytes_max: raise it, or lower these");
  }
}

std::string settings_toml(const Settings& settings) {
  TomlLines lines;
  settings.visit(lines);
  return lines.out;
}

namespace {

// Copies the reloadable fields: both objects are visited in the same order.
struct Collect {
  std::vector<const void*> fields;
  template <class Number>
  void operator()(const char*, const Number& value, u64, u64, bool, const char*) {
    fields.push_back(&value);
  }
  template <class Value>
  void operator()(const char*, const Value& value, bool, const char*) {
    fields.push_back(&value);
  }
};
struct Take {
  const std::vector<const void*>& fields;
  u32 i = 0;
  template <class Number>
  void operator()(const char*, Number& value, u64, u64, bool reloads, const char*) {
    take(value, reloads);
  }
  template <class Value>
  void operator()(const char*, Value& value, bool reloads, const char*) {
    take(value, reloads);
  }
  template <class Value>
  void take(Value& value, bool reloads) {
    if (reloads) value = *static_cast<const Value*>(fields[i]);
    ++i;
  }
};

}  // namespace

void take_reloadable(const Settings& from, Settings& to) {
  Collect collect;
  from.visit(collect);
  to.visit(Take{collect.fields});
}

}  // namespace tarn::daemon
