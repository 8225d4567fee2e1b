// Packs as bytes, whole ones, and made good again after a change to them.
#pragma once

#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "platform/base/checked.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/session_file.h"
#include "tests/support/manifest_bytes.h"

namespace tarn::test {

inline constexpr u32 kSessionPage = 16;
inline constexpr std::string_view kSessionHere = "was here";  // the session that the store has

// Groups of [16 slots][K, V][64 x f16]: 4 KiB.
inline reuse::KvIdentity session_identity(u32 n_layers) {
  return {.n_cache_layers = n_layers,
          .n_kv_heads = 1,
          .head_dim = 64,
          .page_tokens = kSessionPage,
          .layout = reuse::kPageLayout};
}

// Makes good what random bytes never have: checksums, and of the groups' heads all that follows
// from the manifest.
struct SessionMend {
  bool manifest = true, groups = true, head = true;
};

inline void seal_groups(const Crc32c& crc, const reuse::SessionFileHead& head,
                        const reuse::Manifest& manifest, std::span<std::byte> bytes) {
  if (head.group_bytes == 0 || head.group_bytes > bytes.size()) return;
  const u32 n_layers = manifest.identity.n_cache_layers;
  const u64 n_groups = u64{reuse::pages_of(manifest)} * n_layers;
  const u64 step = sizeof(reuse::SessionGroupHead) + head.group_bytes;
  u64 at = reuse::session_groups_begin(head);
  for (u64 i = 0; i < n_groups && at + step <= bytes.size(); ++i, at += step) {
    const u32 page = static_cast<u32>(head.first_page + i / n_layers);
    if (page >= reuse::pages_of(manifest)) return;
    const reuse::SessionGroupHead sealed = reuse::sealed_group_head(
        crc,
        {.chain = reuse::page_key(manifest, page),
         .cache_layer = static_cast<u32>(i % n_layers),
         .page = page,
         .manifest_crc = head.manifest_crc},
        bytes.subspan(at + sizeof(reuse::SessionGroupHead), head.group_bytes));
    std::memcpy(bytes.data() + at, &sealed, sizeof sealed);
  }
}

inline void mend_session(const Crc32c& crc, const SessionMend& what, std::span<std::byte> bytes) {
  if (bytes.size() < store::kSectorBytes) return;
  reuse::SessionFileHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  const u64 room = bytes.size() - store::kSectorBytes;
  if (head.manifest_bytes < kManifestHeadBytes || head.manifest_bytes > room) return;
  const auto manifest = bytes.subspan(store::kSectorBytes, head.manifest_bytes);
  if (what.manifest) mend_manifest(crc, manifest);
  if (what.groups) {
    head.manifest_crc = crc.bytes(manifest.data(), manifest.size());
    // Where a manifest that is read in place begins, as the file's reader has it.
    std::vector<u64> aligned(ceil_div(manifest.size(), sizeof(u64)));
    const auto copy = std::as_writable_bytes(std::span(aligned)).first(manifest.size());
    std::memcpy(copy.data(), manifest.data(), manifest.size());
    if (const auto decoded = reuse::decode_manifest(crc, copy)) {
      seal_groups(crc, head, *decoded, bytes);
    }
  }
  if (what.head) reuse::encode_session_head(crc, head, bytes.first(store::kSectorBytes));
}

// The sessions of a pack as its table has them, then the table and the head.
inline void mend_pack(const Crc32c& crc, const SessionMend& what, std::span<std::byte> bytes) {
  if (bytes.size() < store::kSectorBytes) return;
  reuse::PackHead head;
  std::memcpy(&head, bytes.data(), sizeof head);
  u64 at = reuse::pack_sessions_begin(head.n_sessions);
  if (at > bytes.size()) return;
  head.table_crc = 0;
  for (u32 i = 0; i < head.n_sessions; ++i) {
    std::byte* const place = bytes.data() + store::kSectorBytes + i * sizeof(reuse::PackEntry);
    reuse::PackEntry entry;
    std::memcpy(&entry, place, sizeof entry);
    const u64 n = std::min<u64>(entry.n_bytes, bytes.size() - at);
    mend_session(crc, what, bytes.subspan(at, n));
    reuse::SessionFileHead session;
    if (n >= sizeof session) {
      std::memcpy(&session, bytes.data() + at, sizeof session);
      entry.head_crc = session.head_crc;
    }
    std::memcpy(place, &entry, sizeof entry);
    head.table_crc = reuse::added_crc(crc, head.table_crc, entry);
    at += n;
  }
  if (what.head) reuse::encode_pack_head(crc, head, bytes.first(store::kSectorBytes));
}

struct SessionSize {
  u32 n_tokens = 0, n_slots = 0, n_layers = 2;
  u32 first_token = 0;  // they count up from it
};

inline std::vector<std::byte> session_bytes(const Crc32c& crc, const SessionSize& size,
                                            std::string_view name) {
  std::vector<u32> tokens(size.n_tokens);
  for (u32 i = 0; i < size.n_tokens; ++i) tokens[i] = size.first_token + i;
  std::vector<store::Key> groups(size.n_slots / kSessionPage);
  for (u64 i = 0; i < groups.size(); ++i) groups[i] = {i + 1, size.first_token};
  const bool has_tail = size.n_slots % kSessionPage != 0;
  const reuse::Manifest manifest{.identity = session_identity(size.n_layers),
                                 .n_slots = size.n_slots,
                                 .tail = has_tail ? store::Key{9, 9} : store::Key{},
                                 .groups = groups,
                                 .token_ids = tokens,
                                 .name = name,
                                 .n_fed = size.n_tokens};
  reuse::SessionFileHead head{.manifest_bytes = reuse::manifest_bytes(manifest),
                              .group_bytes = *reuse::group_bytes(manifest.identity),
                              .n_layers = size.n_layers,
                              .n_pages = reuse::pages_of(manifest)};
  std::vector<std::byte> bytes(reuse::session_file_bytes(head), std::byte{0x3C});
  std::memset(bytes.data(), 0, reuse::session_groups_begin(head));
  reuse::encode_manifest(crc, manifest,
                         std::span(bytes).subspan(store::kSectorBytes, head.manifest_bytes));
  std::memcpy(bytes.data(), &head, sizeof head);
  mend_session(crc, {}, bytes);
  return bytes;
}

// A pack of these sessions. `first_pages`: of each session as many pages are left out, which
// the one before has.
inline std::vector<std::byte> pack_bytes(const Crc32c& crc,
                                         std::vector<std::vector<std::byte>> sessions,
                                         const std::vector<u32>& first_pages) {
  const auto n = static_cast<u32>(sessions.size());
  std::vector<std::byte> bytes(reuse::pack_sessions_begin(n), std::byte{0});
  reuse::PackHead head{.n_sessions = n};
  for (u32 i = 0; i < n; ++i) {
    auto& session = sessions[i];
    reuse::SessionFileHead own;
    std::memcpy(&own, session.data(), sizeof own);
    const u64 step = sizeof(reuse::SessionGroupHead) + own.group_bytes;
    const auto begin = session.begin() + static_cast<i64>(reuse::session_groups_begin(own));
    session.erase(begin, begin + static_cast<i64>(first_pages[i] * own.n_layers * step));
    own.first_page = first_pages[i];
    own.n_pages -= first_pages[i];
    std::memcpy(session.data(), &own, sizeof own);
    const reuse::PackEntry entry{.n_bytes = session.size()};
    std::memcpy(bytes.data() + store::kSectorBytes + i * sizeof entry, &entry, sizeof entry);
    bytes.insert(bytes.end(), session.begin(), session.end());
  }
  head.n_bytes = bytes.size();
  reuse::encode_pack_head(crc, head, std::span(bytes).first(store::kSectorBytes));
  mend_pack(crc, {}, bytes);
  return bytes;
}

}  // namespace tarn::test
