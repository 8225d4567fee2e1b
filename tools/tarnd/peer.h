// Who asks, and whether it may: a peer of the Unix socket by its uid, a client over TCP by its key.
// On TCP the Host must be ours, and an Origin must be allowed. So a web page in a browser
// cannot reach the daemon: neither by a name that resolves to it, nor across origins.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/types.h"
#include "tools/tarnd/settings.h"

namespace tarn::daemon {

struct Peer {
  bool is_tcp = false;
  uid_t uid = 0;                   // of a Unix socket's peer, when it connected
  std::vector<gid_t> groups = {};  // its own first
  std::string tenant = {};         // "uid:N", "key:LABEL", or "" for the default one
};

struct Key {
  std::string label, key;
};
// LABEL KEY a line, or a KEY alone (its label is the line's number); '#' begins a comment. Throws
// Failure: exit code 78 for a line that is none, or a file that others may read.
std::vector<Key> read_keys(const std::string& path);

// Returns the name of a Host field.
std::string_view without_port(std::string_view host);

class PeerRules {
 public:
  // Throws Failure for a user or a group that is not there, and what read_keys throws.
  explicit PeerRules(const Settings& settings);

  // Before a byte is read.
  bool allows(const Peer& peer) const;
  // The label of a key: from "Authorization: Bearer KEY" or "x-api-key". Takes the same time for
  // every wrong key of a length.
  std::optional<std::string> label_of(std::string_view authorization,
                                      std::string_view api_key) const;
  bool is_our_host(std::string_view host) const;
  // None is as good as an allowed one: then no page asks.
  bool is_our_origin(std::string_view origin) const;

 private:
  std::vector<uid_t> users_;
  std::vector<gid_t> groups_;
  std::vector<Key> keys_;
  std::vector<std::string> hosts_, origins_;
};

}  // namespace tarn::daemon
