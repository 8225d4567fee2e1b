#include "runtime/reuse/session_file.h"

#include <cstddef>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/reuse/manifest.h"

namespace tarn::reuse {
namespace {

constexpr std::array<char, 8> kMagic = {'T', 'A', 'R', 'N', 'T', 'A', 'L', 'K'};

u32 head_crc_of(const Crc32c& crc, std::span<const std::byte> sector) {
  return store::sector_crc(crc, sector, offsetof(SessionFileHead, head_crc));
}

}  // namespace

Unexpected damaged_session_file(const char* part, std::optional<u64> page) {
  return fail({.status = Status::io_failed,
               .hint = "the file is no exported session, or a damaged one, and nothing was taken "
                       "from it: copy or export it again",
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

void encode_session_head(const Crc32c& crc, SessionFileHead head, std::span<std::byte> sector) {
  TARN_ASSERT(sector.size() == store::kSectorBytes);
  head.magic = kMagic;
  head.version = kSessionFileVersion;
  head.head_crc = 0;
  head.n_bytes = session_file_bytes(head);
  std::memset(sector.data(), 0, sector.size());
  std::memcpy(sector.data(), &head, sizeof head);
  head.head_crc = head_crc_of(crc, sector);
  std::memcpy(sector.data(), &head, sizeof head);
}

Result<SessionFileHead> parse_session_head(const Crc32c& crc, std::span<const std::byte> sector,
                                           u64 file_bytes) {
  TARN_ASSERT(sector.size() == store::kSectorBytes);
  SessionFileHead head;
  std::memcpy(&head, sector.data(), sizeof head);
  if (head.magic != kMagic) return damaged_session_file("magic");
  // Later formats keep the magic, the version and the checksum of the sector.
  if (head.head_crc != head_crc_of(crc, sector)) return damaged_session_file("head");
  if (head.version > kSessionFileVersion) {
    return fail({.status = Status::unsupported,
                 .hint = "this session was exported by a newer version of Tarn: import it with "
                         "that one",
                 .figures = {{{"version", head.version}, {"version_max", kSessionFileVersion}}}});
  }
  if (head.version != kSessionFileVersion) return damaged_session_file("version");
  if (head.reserved != 0) return damaged_session_file("reserved");
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

SessionGroupHead sealed_group_head(const Crc32c& crc, SessionGroupHead head,
                                   std::span<const std::byte> payload) {
  head.payload_crc = crc.bytes(payload.data(), payload.size());
  head.head_crc = 0;
  head.head_crc = crc.bytes(reinterpret_cast<const std::byte*>(&head), sizeof head);
  return head;
}

}  // namespace tarn::reuse
