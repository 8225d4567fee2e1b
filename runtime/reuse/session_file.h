// A pack as bytes: a file of sessions, each with its manifest and the groups of KV that it names.
// FORMAT.md has the layout.
//
//   pages    a session may have fewer pages here than its manifest names, from the first one on.
//            The others are recomputed. The first pages may be those of the session before
//   trust    checksums find damage, not forgery: import only from sources that you trust like the
//            store itself
//   errors   Status::io_failed with the part at fault; a later format is unsupported
#pragma once

#include <optional>

#include "platform/base/result.h"
#include "platform/cpu/crc32c.h"
#include "runtime/store/key.h"
#include "runtime/store/record.h"

namespace tarn::reuse {

inline constexpr u32 kSessionFileVersion = 1;
inline constexpr u32 kPackVersion = 1;
inline constexpr u32 kSessionLayersMax = 1u << 12;  // more than any model's cache has

struct SessionFileHead {
  std::array<char, 8> magic{};
  u32 version = 0;
  u32 head_crc = 0;        // of the sector with this field as zero
  u64 n_bytes = 0;         // of the session
  u64 manifest_bytes = 0;  // without the padding
  u64 group_bytes = 0;     // a multiple of 4 KiB
  u32 n_layers = 0;        // groups of each page
  u32 n_pages = 0;         // that are here
  u32 manifest_crc = 0;    // of its bytes: groups of another session do not fit
  u32 first_page = 0;      // that is here; the pages before it are those of the session before
  friend bool operator==(const SessionFileHead&, const SessionFileHead&) = default;
};
static_assert(sizeof(SessionFileHead) == 56);

struct PackHead {
  std::array<char, 8> magic{};
  u32 version = 0;
  u32 head_crc = 0;  // of the sector with this field as zero
  u64 n_bytes = 0;   // of the whole file
  u32 n_sessions = 0;
  u32 table_crc = 0;  // added_crc() of all entries, in their order, from 0 on
  friend bool operator==(const PackHead&, const PackHead&) = default;
};
static_assert(sizeof(PackHead) == 32);

// A session's line in the table of a pack.
struct PackEntry {
  u64 n_bytes = 0;
  u32 head_crc = 0;  // SessionFileHead::head_crc
  u32 reserved = 0;
};
static_assert(sizeof(PackEntry) == 16);

struct SessionGroupHead {
  store::Key chain{};  // the manifest's key of this page
  u32 cache_layer = 0;
  u32 page = 0;
  u32 payload_crc = 0;
  u32 manifest_crc = 0;
  std::array<u32, 7> reserved{};
  u32 head_crc = 0;  // of these 64 bytes with this field as zero
  friend bool operator==(const SessionGroupHead&, const SessionGroupHead&) = default;
};
static_assert(sizeof(SessionGroupHead) == 64);

// Where the first group begins, and how long the session is; magic, version, checksum and length
// are encode_session_head()'s. Within the limits of parse_session_head() these do not wrap.
u64 session_groups_begin(const SessionFileHead& head);
u64 session_file_bytes(const SessionFileHead& head);

// Returns the head as it was written.
SessionFileHead encode_session_head(const Crc32c& crc, SessionFileHead head,
                                    std::span<std::byte> sector);
// `file_bytes`: how long the session is. Its manifest and its groups are within a record's limits.
Result<SessionFileHead> parse_session_head(const Crc32c& crc, std::span<const std::byte> sector,
                                           u64 file_bytes);

// The checksum of a table with one entry more.
u32 added_crc(const Crc32c& crc, u32 table_crc, const PackEntry& entry);
// Where the first session of a pack begins: behind the head's sector and the table, padded.
u64 pack_sessions_begin(u32 n_sessions);
void encode_pack_head(const Crc32c& crc, PackHead head, std::span<std::byte> sector);
Result<PackHead> parse_pack_head(const Crc32c& crc, std::span<const std::byte> sector,
                                 u64 file_bytes);

// With both checksums made.
SessionGroupHead sealed_group_head(const Crc32c& crc, SessionGroupHead head,
                                   std::span<const std::byte> payload);

// Groups are counted page by page, in each the cache layers.
struct GroupPlace {
  u32 page = 0, layer = 0;
};
inline GroupPlace place_of(u64 group, u32 n_layers) {
  return {static_cast<u32>(group / n_layers), static_cast<u32>(group % n_layers)};
}

Unexpected damaged_session_file(const char* part, std::optional<u64> page = {});

}  // namespace tarn::reuse
