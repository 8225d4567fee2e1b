// A pack of one session, from the session's bytes, with good checksums whatever these are.
#pragma once

#include <cstring>
#include <string>

#include "runtime/reuse/session_file.h"

namespace tarn::test {

inline std::string pack_of_one(const std::string& session) {
  const Crc32c& crc = crc32c_ways()[0];
  std::string pack(reuse::pack_sessions_begin(1), '\0');
  reuse::PackEntry entry{.n_bytes = session.size()};
  reuse::SessionFileHead head;
  if (session.size() >= sizeof head) {
    std::memcpy(&head, session.data(), sizeof head);
    entry.head_crc = head.head_crc;
  }
  std::memcpy(pack.data() + kSectorBytes, &entry, sizeof entry);
  alignas(8) std::array<std::byte, kSectorBytes> sector;
  reuse::encode_pack_head(crc,
                          {.n_bytes = pack.size() + session.size(),
                           .n_sessions = 1,
                           .table_crc = reuse::added_crc(crc, 0, entry)},
                          sector);
  std::memcpy(pack.data(), sector.data(), sector.size());
  return pack + session;
}

// The session's bytes.
inline std::string session_of(const std::string& pack) {
  return pack.substr(reuse::pack_sessions_begin(1));
}

}  // namespace tarn::test
