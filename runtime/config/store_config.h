// runtime/config/store_config.h
//
// The store's share of the configuration: where KV, sessions and codebooks lie on disk, and how
// much of the disk they may take and wear. Off until a folder is named. Sizes have no default: only
// the owner of the box knows what else is on the disk, and how much it may be written to.
#pragma once

#include <array>
#include <string_view>

#include "platform/base/result.h"
#include "platform/base/types.h"

namespace tarn {

inline constexpr u64 kStoreBytesMax = 16384 * kGiB;
inline constexpr u64 kStoreFrameBytesMax = 64 * kMiB;
inline constexpr u64 kKeptTokensMax = u64{1} << 30;
// In the folder. What only spills may be cut anew at any time, so it is another file.
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
     "ceiling of the store's file, which gets its size at the start, as tarn plan says; needed "
     "with a path, and no less than a file with kept sessions has");
  on("store.daily_write_bytes", self.daily_write_bytes, u64{0}, kStoreBytesMax,
     "what may be written in a day, so that the disk does not wear out; 0: no limit");
  on("store.frame_bytes", self.frame_bytes, u64{0}, kStoreFrameBytesMax,
     "unit of the file, a multiple of 4 KiB, no less than a group of KV with its head, and what a "
     "file with kept sessions has; 0: what suits");
  on("store.requests_max", self.requests_max, u64{1}, u64{256}, "records on their way at one time");
  on("store.sessions", self.sessions,
     "keep sessions: they can be saved and taken up after a restart; needs a path");
  on("store.kept_tokens", self.kept_tokens, u64{0}, kKeptTokensMax,
     "tokens of kept sessions, all together, that the file has room for beside the open ones'; the "
     "longest unused give way to newer ones; 0: as many as kv.context_tokens");
  on("store.checkpoint_ms", self.checkpoint_ms, u64{0}, u64{3'600'000},
     "a kept session's work is on disk after so long, and a step more; 0: when it is saved");
}

Result<void> store_config_validate(const StoreConfig& config);

}  // namespace tarn
