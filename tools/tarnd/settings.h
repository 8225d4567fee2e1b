// The daemon's own keys: the table [daemon] of the configuration, which the engine ignores. One
// visit() has each key's bounds and meaning; reader, --check-config and documentation come from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "platform/base/types.h"

namespace tarn::daemon {

struct Settings {
  std::vector<std::string> listen;
  u32 socket_mode = 660;  // as octal digits are written
  std::string socket_group;
  std::vector<std::string> allow_users, allow_groups;
  std::string keys_file;
  std::vector<std::string> hosts, origins;
  bool beyond_loopback = false, shared = false;
  std::string model_name, chat_template;
  u32 connections_max = 64;
  u64 body_bytes_max = u64{8} << 20, memory_bytes = u64{64} << 20, unread_bytes_max = u64{1} << 18;
  u32 header_s = 10, body_s = 30, idle_s = 75, stalled_s = 10, ping_s = 15, drain_s = 15;
  std::string log_level = "info";
  // TCP on 127.0.0.1 takes requests without a key. Of the command line alone, so that it is seen
  // where the daemon is started.
  bool insecure_no_key = false;

  // Calls, in a fixed order: on(key, field, min, max, reloads, about) for numbers, and
  // on(key, field, reloads, about) for the others. `reloads`: SIGHUP takes a new value.
  template <class Visitor>
  void visit(Visitor&& on) {
    visit_fields(*this, on);
  }
  template <class Visitor>
  void visit(Visitor&& on) const {
    visit_fields(*this, on);
  }

 private:
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on);
};

// Overrides `settings` by the table [daemon] of a TOML text, which the engine has read without
// error. Throws Failure with exit code 78, file, line and column.
void read_settings(std::string_view toml, const std::string& file, Settings& settings);
// Checks the relations between keys. Throws Failure.
void check_settings(const Settings& settings);
// The least memory_bytes for these limits.
u64 network_bytes_least(const Settings& settings);
// Takes the keys that a running daemon may change.
void take_reloadable(const Settings& from, Settings& to);
std::string settings_toml(const Settings& settings);
// 660 as the mode 0660; false if a digit is none.
bool octal_mode(u32 digits, u32* mode);

template <class Self, class Visitor>
void Settings::visit_fields(Self& self, Visitor& on) {
  on("listen", self.listen, false, "where: unix:///path, tcp://address:port");
  on("socket_mode", self.socket_mode, u64{0}, u64{777}, false, "mode of a Unix socket, octal");
  on("socket_group", self.socket_group, false, "its group; empty: the process' own");
  on("allow_users", self.allow_users, true,
     "users (names or numbers) that may connect to a Unix socket; both lists empty: all whom its "
     "mode lets in");
  on("allow_groups", self.allow_groups, true, "groups that may");
  on("keys_file", self.keys_file, true,
     "keys for TCP, LABEL KEY a line, 8 to 256 characters a key; needed with tcp://");
  on("hosts", self.hosts, true,
     "names in a Host field over TCP, without a port, beside addresses and localhost");
  on("origins", self.origins, true,
     "web pages that may ask over TCP, as in http://localhost:3000 (CORS)");
  on("beyond_loopback", self.beyond_loopback, false, "tcp:// may name an address of the network");
  on("shared", self.shared, false,
     "all clients and the command line are one tenant, and reuse each other's KV");
  on("model_name", self.model_name, false, "the model's name in replies; empty: its file's");
  on("chat_template", self.chat_template, false,
     "a built-in template's name or a template's text; empty: the model's own");
  on("connections_max", self.connections_max, u64{1}, u64{4096}, false, "open at a time");
  on("body_bytes_max", self.body_bytes_max, u64{1024}, u64{1} << 30, true, "of a request's body");
  on("memory_bytes", self.memory_bytes, u64{1} << 20, u64{1} << 36, false,
     "memory of the network: connections, requests, replies; part of the budget");
  on("unread_bytes_max", self.unread_bytes_max, u64{4096}, u64{1} << 30, true,
     "of a stream that its client has not read; then the client is dropped");
  on("header_s", self.header_s, u64{1}, u64{3600}, true, "seconds that a request's head may take");
  on("body_s", self.body_s, u64{1}, u64{3600}, true, "seconds that its body may take");
  on("idle_s", self.idle_s, u64{1}, u64{86400}, true, "seconds between two requests");
  on("stalled_s", self.stalled_s, u64{1}, u64{3600}, true, "seconds without progress of a reply");
  on("ping_s", self.ping_s, u64{1}, u64{3600}, true, "seconds between comments in a silent stream");
  on("drain_s", self.drain_s, u64{0}, u64{86400}, true, "seconds for running answers at the end");
  on("log_level", self.log_level, true, "debug, info, warning or error");
}

}  // namespace tarn::daemon
