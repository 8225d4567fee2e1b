// The store's share of the configuration: the folder of KV, sessions and codebooks on disk, and
// limits of space and of writes. The store is off until a folder is named. Sizes have no default:
// only the owner of the box knows what else is on the disk, and how many writes it endures.
#pragma once

#include <array>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

inline constexpr u64 kStoreBytesMax = 16384 * kGiB;
inline constexpr u64 kStoreFrameBytesMax = 64 * kMiB;
inline constexpr u64 kKeptTokensMax = u64{1} << 30;
// The files in the folder. Spilled KV has a file of its own, because that file may be re-created at
// any time.
inline constexpr char kSessionsFile[] = "sessions.tarn";
inline constexpr char kSpillFile[] = "kv.tarn";

struct StoreConfig {
  std::array<char, 256> path{};  // the folder; empty: off
  u64 quota_bytes = 0;
  u64 daily_write_bytes = 0;
  u64 frame_bytes = 0;
  u32 requests_max = 256;
  bool sessions = false;
  u64 kept_tokens = 0;
  u32 checkpoint_ms = 1000;

  std::string_view folder() const { return {path.data()}; }
  bool is_off() const { return path[0] == '\0'; }

  // Config::visit()'s share of it.
  template <class Self, class Visitor>
  static void visit_fields(Self& self, Visitor& on);
};

template <class Self, class Visitor>
void StoreConfig::visit_fields(Self& self, Visitor& on) {
  on("store.path", self.path, "folder of the store, made with mode 0700; empty: no store");
  on("store.quota_bytes", self.quota_bytes, u64{0}, kStoreBytesMax,
     "ceiling of the store's file, which gets its size at the start (tarn plan shows it); required "
     "with a path; not less than an existing file with kept sessions");
  on("store.daily_write_bytes", self.daily_write_bytes, u64{0}, kStoreBytesMax,
     "limit of bytes written in a day, against wear of the disk; 0: no limit");
  on("store.frame_bytes", self.frame_bytes, u64{0}, kStoreFrameBytesMax,
     "unit of the file, a multiple of 4 KiB, at least a group of KV with its head, and equal to "
     "that of an existing file with kept sessions; 0: automatic");
  on("store.requests_max", self.requests_max, u64{1}, u64{256}, "records in flight at a time");
  on("store.sessions", self.sessions,
     "keep sessions: they can be saved, and restored after a restart; needs a path");
  on("store.kept_tokens", self.kept_tokens, u64{0}, kKeptTokensMax,
     "room in the file for tokens of kept sessions, all together, beside the open sessions'; the "
     "least recently used are evicted; 0: as many as kv.context_tokens");
  on("store.checkpoint_ms", self.checkpoint_ms, u64{0}, u64{3'600'000},
     "checkpoint interval of a kept session; a crash costs this time and a step; 0: only a save "
     "writes");
}

Result<void> store_config_validate(const StoreConfig& config);

}  // namespace tarn
