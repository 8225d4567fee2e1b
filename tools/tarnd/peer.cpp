#include "tools/tarnd/peer.h"

#include <arpa/inet.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>

#include "tools/support/exit_code.h"
#include "tools/support/input.h"
#include "tools/tarnd/http_head.h"

namespace tarn::daemon {
namespace {

constexpr u64 kKeysBytesMax = 1 << 20;
constexpr size_t kKeyBytesMin = 8, kKeyBytesMax = 256;

[[noreturn]] void refuse(const std::string& why) { throw tools::Failure{tools::kExitRefused, why}; }

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r'; }

std::optional<u32> parsed_id(const std::string& text) {
  u32 id = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, id);
  if (read.ec == std::errc{} && read.ptr == end) return id;
  return std::nullopt;
}

uid_t user_id(const std::string& name) {
  if (const auto id = parsed_id(name)) return *id;
  const passwd* const found = getpwnam(name.c_str());
  if (found == nullptr) refuse("daemon.allow_users: there is no user " + name);
  return found->pw_uid;
}
gid_t group_id(const std::string& name) {
  if (const auto id = parsed_id(name)) return *id;
  const group* const found = getgrnam(name.c_str());
  if (found == nullptr) refuse("daemon.allow_groups: there is no group " + name);
  return found->gr_gid;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const auto begin = std::ranges::find_if_not(line, is_blank);
    line.remove_prefix(static_cast<size_t>(begin - line.begin()));
    const auto end = std::ranges::find_if(line, is_blank);
    const auto n = static_cast<size_t>(end - line.begin());
    if (n > 0) words.push_back(line.substr(0, n));
    line.remove_prefix(n);
  }
  return words;
}

Key key_of(std::string_view line, const std::string& path, u64 line_number) {
  const std::vector<std::string_view> words = words_of(line);
  const std::string where = path + ":" + std::to_string(line_number) + ": ";
  if (words.size() > 2) refuse(where + "a line has LABEL KEY, or a KEY alone");
  const std::string_view key = words.back();
  if (key.size() < kKeyBytesMin || key.size() > kKeyBytesMax) {
    refuse(where + "a key has 8 to 256 characters, this one " + std::to_string(key.size()) +
           " (openssl rand -hex 16 makes one)");
  }
  const auto is_sent = [](char c) { return c > ' ' && c < '\x7f'; };
  if (!std::ranges::all_of(key, is_sent) || line.find('\0') != line.npos) {
    refuse(where + "a key is printable ASCII: an Authorization field has nothing else");
  }
  const std::string label = words.size() == 2 ? std::string(words[0]) : std::to_string(line_number);
  return {label, std::string(key)};
}

// Compares all bytes, whatever the first ones say.
bool is_same(std::string_view a, std::string_view b) {
  u32 differences = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    differences |= static_cast<u8>(a[i]) ^ static_cast<u32>(static_cast<u8>(b[i]));
  }
  return differences == 0;
}

bool is_address(std::string_view host) {
  std::string text(host);
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  u8 bytes[16];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 ||
         inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

}  // namespace

std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

std::vector<Key> read_keys(const std::string& path) {
  struct stat facts {};
  const bool is_there = stat(path.c_str(), &facts) == 0;
  // A pipe would be empty at the next SIGHUP, and a device never ends.
  if (is_there && !S_ISREG(facts.st_mode)) {
    refuse(path + ": no plain file: daemon.keys_file names a file with LABEL KEY a line");
  }
  if (is_there && (facts.st_mode & (S_IRWXO | S_IWGRP)) != 0) {
    refuse(path + ": others may read or change the keys: chmod 640 or 600");
  }
  const std::string text = tools::read_file(path, kKeysBytesMax);
  std::vector<Key> keys;
  u64 line_number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(rest.size(), end + 1));
    ++line_number;
    line = line.substr(0, line.find('#'));
    if (words_of(line).empty()) continue;
    keys.push_back(key_of(line, path, line_number));
  }
  if (keys.empty()) refuse(path + ": there is no key in it");
  return keys;
}

PeerRules::PeerRules(const Settings& settings)
    : hosts_(settings.hosts), origins_(settings.origins) {
  for (const std::string& name : settings.allow_users) users_.push_back(user_id(name));
  for (const std::string& name : settings.allow_groups) groups_.push_back(group_id(name));
  if (!settings.keys_file.empty()) keys_ = read_keys(settings.keys_file);
}

bool PeerRules::allows(const Peer& peer) const {
  if (peer.is_tcp || (users_.empty() && groups_.empty())) return true;
  return std::ranges::find(users_, peer.uid) != users_.end() ||
         std::ranges::find_first_of(peer.groups, groups_) != peer.groups.end();
}

std::optional<std::string> PeerRules::label_of(std::string_view authorization,
                                               std::string_view api_key) const {
  constexpr std::string_view kBearer = "bearer ";
  std::string_view key = api_key;
  if (equals_ignoring_case(authorization.substr(0, kBearer.size()), kBearer)) {
    key = authorization.substr(kBearer.size());
  }
  std::optional<std::string> label;
  for (const Key& each : keys_) {
    if (is_same(key, each.key)) label = each.label;
  }
  return label;
}

bool PeerRules::is_our_host(std::string_view host) const {
  const std::string_view name = without_port(host);
  if (is_address(name) || equals_ignoring_case(name, "localhost")) return true;
  return std::ranges::any_of(
      hosts_, [&](const std::string& ours) { return equals_ignoring_case(name, ours); });
}

bool PeerRules::is_our_origin(std::string_view origin) const {
  if (origin.empty()) return true;
  return std::ranges::any_of(
      origins_, [&](const std::string& ours) { return equals_ignoring_case(origin, ours); });
}

}  // namespace tarn::daemon
