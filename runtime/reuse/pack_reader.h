// Reads a pack. Checks every byte before it returns it. Knows nothing of a store.
//
//   order    restart(), then next() for each session in turn. The groups of the session that
//            next() read may be read in any order
//   memory   lent; nothing is allocated
//   errors   as in session_file.h, and those of reading the file
#pragma once

#include "platform/io/stream_file.h"
#include "runtime/reuse/manifest.h"
#include "runtime/reuse/session_file.h"

namespace tarn::reuse {

class PackReader {
 public:
  // `manifest` holds one manifest at a time: whole sectors. A session with more pages than
  // pages_max is refused.
  PackReader(const Crc32c& crc, std::span<std::byte> manifest, u64 pages_max)
      : crc_(crc), buffer_(manifest), pages_max_(pages_max) {}

  // Then the first next() reads the first session.
  Result<void> open(const char* path);
  u32 n_sessions() const { return n_sessions_; }
  void restart();
  Result<void> next();
  // Returns the head of the session that next() read. The manifest's spans are valid until the next
  // call of it.
  const SessionFileHead& head() const { return head_; }
  const Manifest& manifest() const { return manifest_; }
  // Pages [head().first_page, end) are here; those before are the earlier session's.
  u32 end_page() const { return head_.first_page + head_.n_pages; }
  // `payload` has head().group_bytes. Groups are counted from the first page of the manifest on.
  Result<void> read_group(u64 group, std::span<std::byte> payload);

 private:
  Result<void> read_table(const PackHead& head);
  Result<Manifest> read_manifest();

  const Crc32c& crc_;
  std::span<std::byte> buffer_;
  u64 pages_max_;
  FileReader file_{};
  u32 n_sessions_ = 0, n_read_ = 0;
  u64 begin_ = 0, end_ = 0;  // of the session in the file
  u32 pages_before_ = 0;     // that the session before has
  SessionFileHead head_{};
  Manifest manifest_{};
};

// A session that is longer than an engine's buffers.
Unexpected too_long(std::string_view name);

// The head of a group of this session, as it stands in the file.
SessionGroupHead group_head_of(const Crc32c& crc, const Manifest& manifest,
                               const SessionFileHead& head, u64 group,
                               std::span<const std::byte> payload);

}  // namespace tarn::reuse
