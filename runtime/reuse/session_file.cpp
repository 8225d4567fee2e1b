#include "runtime/reuse/session_file.h"

#include <cstddef>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/reuse/manifest.h"

namespace tarn::reuse {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'A', 'R', 'N', 'T', 'A', 'L', 'K'};
constexpr std::array<char, 8> kPackMagic = {'T', 'A', 'R', 'N', 'P', 'A', 'C', 'K'};

// Both heads have it at the same place.
u32 head_crc_of(const Crc32c& crc, std::span<const std::byte> sector) {
  static_assert(offsetof(SessionFileHead, head_crc) == offsetof(PackHead, head_crc));
  return store::sector_crc(crc, sector, offsetof(SessionFileHead, head_crc));
}

// Writes a sector with this head, whose checksum is zero so far.
template <class Head>
Head seal(const Crc32c& crc, Head head, std::span<std::byte> sector) {
  TARN_ASSERT(sector.size() == store::kSectorBytes);
  std::memset(sector.data(), 0, sector.size());
  std::memcpy(sector.data(), &head, sizeof head);
  head.head_crc = head_crc_of(crc, sector);
  std::memcpy(sector.data(), &head, sizeof head);
  return head;
}

// Later formats keep the magic, the version and the checksum of the sector.
template <class Head>
Result<Head> open_sector(const Crc32c& crc, const std::array<char, 8>& magic, u32 version_max,
                         std::span<const std::byte> sector) {
  TARN_ASSERT(sector.size() == store::kSectorBytes);
  Head head;
  std::memcpy(&head, sector.data(), sizeof head);
  if (head.magic != magic) return damaged_session_file("magic");
  if (head.head_crc != head_crc_of(crc, sector)) return damaged_session_file("head");
  if (head.version > version_max) {
    return fail({.status = Status::unsupported,
                 .hint = "this file was packed by a newer version of Tarn: unpack it with that "
                         "one",
                 .figures = {{{"version", head.version}, {"version_max", version_max}}}});
  }
  if (head.version != version_max) return damaged_session_file("version");
  return head;
}

}  // namespace

Unexpected damaged_session_file(const char* part, std::optional<u64> page) {
  return fail({.status = Status::io_failed,
               .hint = "the file is no pack, or a damaged one, and nothing was taken from it: "
                       "copy it again, or make it again",
               .detail = Detail(part),
               .figures = {page ? Figure{"page", *page} : Figure{}}});
}

u64 session_groups_begin(const SessionFileHead& head) {
  return store::kSectorBytes + align_up(head.manifest_bytes, store::kSectorBytes);
}

u64 session_file_bytes(const SessionFileHead& head) {
  return session_groups_begin(head) +
         u64{head.n_pages} * head.n_layers * (sizeof(SessionGroupHead) + head.group_bytes);
}

SessionFileHead encode_session_head(const Crc32c& crc, SessionFileHead head,
                                    std::span<std::byte> sector) {
  head.magic = kMagic;
  head.version = kSessionFileVersion;
  head.head_crc = 0;
  head.n_bytes = session_file_bytes(head);
  return seal(crc, head, sector);
}

Result<SessionFileHead> parse_session_head(const Crc32c& crc, std::span<const std::byte> sector,
                                           u64 file_bytes) {
  TARN_TRY(const SessionFileHead head,
           open_sector<SessionFileHead>(crc, kMagic, kSessionFileVersion, sector));
  if (head.manifest_bytes > store::kPayloadBytesMax) return damaged_session_file("manifest_bytes");
  const bool is_group = head.group_bytes > 0 && head.group_bytes <= store::kPayloadBytesMax &&
                        head.group_bytes % store::kSectorBytes == 0;
  if (!is_group) return damaged_session_file("group_bytes");
  if (head.n_layers == 0 || head.n_layers > kSessionLayersMax) {
    return damaged_session_file("n_layers");
  }
  if (head.n_pages > kManifestGroupsMax + 1) return damaged_session_file("n_pages");
  if (head.n_bytes != session_file_bytes(head) || head.n_bytes != file_bytes) {
    return damaged_session_file("length");
  }
  return head;
}

u32 added_crc(const Crc32c& crc, u32 table_crc, const PackEntry& entry) {
  std::array<std::byte, sizeof table_crc + sizeof entry> both;
  std::memcpy(both.data(), &table_crc, sizeof table_crc);
  std::memcpy(both.data() + sizeof table_crc, &entry, sizeof entry);
  return crc.bytes(both.data(), both.size());
}

u64 pack_sessions_begin(u32 n_sessions) {
  return store::kSectorBytes + align_up(u64{n_sessions} * sizeof(PackEntry), store::kSectorBytes);
}

void encode_pack_head(const Crc32c& crc, PackHead head, std::span<std::byte> sector) {
  head.magic = kPackMagic;
  head.version = kPackVersion;
  head.head_crc = 0;
  static_cast<void>(seal(crc, head, sector));
}

Result<PackHead> parse_pack_head(const Crc32c& crc, std::span<const std::byte> sector,
                                 u64 file_bytes) {
  TARN_TRY(const PackHead head, open_sector<PackHead>(crc, kPackMagic, kPackVersion, sector));
  if (head.n_sessions == 0) return damaged_session_file("n_sessions");
  if (head.n_bytes != file_bytes || pack_sessions_begin(head.n_sessions) > file_bytes) {
    return damaged_session_file("length");
  }
  return head;
}

SessionGroupHead sealed_group_head(const Crc32c& crc, SessionGroupHead head,
                                   std::span<const std::byte> payload) {
  head.payload_crc = crc.bytes(payload.data(), payload.size());
  head.head_crc = 0;
  head.head_crc = crc.bytes(reinterpret_cast<const std::byte*>(&head), sizeof head);
  return head;
}

}  // namespace tarn::reuse
