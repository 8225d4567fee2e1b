#include "runtime/reuse/pack_reader.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::reuse {
namespace {

bool is_zero(std::span<const std::byte> bytes) {
  return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0}; });
}

}  // namespace

Unexpected too_long(std::string_view name) {
  return fail({.status = Status::invalid_request,
               .reason = Reason::context_too_long,
               .hint = "the session is longer than the context: raise -c (kv.context_tokens)",
               .detail = Detail(name)});
}

SessionGroupHead group_head_of(const Crc32c& crc, const Manifest& manifest,
                               const SessionFileHead& head, u64 group,
                               std::span<const std::byte> payload) {
  const auto [page, layer] = place_of(group, head.n_layers);
  return sealed_group_head(crc,
                           {.chain = page_key(manifest, page),
                            .cache_layer = layer,
                            .page = page,
                            .manifest_crc = head.manifest_crc},
                           payload);
}

Result<void> PackReader::open(const char* path) {
  TARN_CHECK(file_.open(path));
  alignas(8) std::array<std::byte, store::kSectorBytes> sector;
  if (file_.size_bytes() < sector.size()) return damaged_session_file("length");
  TARN_CHECK(file_.read(sector));
  TARN_TRY(const PackHead head, parse_pack_head(crc_, sector, file_.size_bytes()));
  n_sessions_ = head.n_sessions;
  TARN_CHECK(read_table(head));
  restart();
  return {};
}

// The sessions follow the table, one behind another, up to the end of the file.
Result<void> PackReader::read_table(const PackHead& head) {
  u32 crc = 0;
  u64 end = pack_sessions_begin(head.n_sessions);
  for (u32 i = 0; i < head.n_sessions; ++i) {
    PackEntry entry;
    TARN_CHECK(file_.read(std::as_writable_bytes(std::span(&entry, 1))));
    crc = added_crc(crc_, crc, entry);
    if (entry.reserved != 0 || entry.n_bytes > head.n_bytes - end) {
      return damaged_session_file("table");
    }
    end += entry.n_bytes;
  }
  if (crc != head.table_crc || end != head.n_bytes) return damaged_session_file("table");
  std::array<std::byte, store::kSectorBytes> padding;
  const u64 n_padding = pack_sessions_begin(head.n_sessions) - store::kSectorBytes -
                        u64{head.n_sessions} * sizeof(PackEntry);
  TARN_CHECK(file_.read(std::span(padding).first(n_padding)));
  return is_zero(std::span(padding).first(n_padding)) ? Result<void>()
                                                      : damaged_session_file("padding");
}

void PackReader::restart() {
  n_read_ = 0;
  end_ = pack_sessions_begin(n_sessions_);
  pages_before_ = 0;
}

Result<void> PackReader::next() {
  TARN_ASSERT(n_read_ < n_sessions_);
  PackEntry entry;
  TARN_CHECK(file_.rewind(store::kSectorBytes + u64{n_read_} * sizeof entry));
  TARN_CHECK(file_.read(std::as_writable_bytes(std::span(&entry, 1))));
  ++n_read_;
  begin_ = end_;
  if (entry.n_bytes > file_.size_bytes() - begin_) return damaged_session_file("table");
  end_ = begin_ + entry.n_bytes;
  TARN_CHECK(file_.rewind(begin_));
  alignas(8) std::array<std::byte, store::kSectorBytes> sector;
  TARN_CHECK(file_.read(sector));
  TARN_TRY(head_, parse_session_head(crc_, sector, entry.n_bytes));
  if (head_.head_crc != entry.head_crc) return damaged_session_file("table");
  if (head_.first_page > pages_before_) return damaged_session_file("first_page");
  TARN_TRY(manifest_, read_manifest());
  pages_before_ = end_page();
  return {};
}

Result<Manifest> PackReader::read_manifest() {
  const u64 n_padded = align_up(head_.manifest_bytes, store::kSectorBytes);
  if (n_padded > buffer_.size()) return too_long("");
  TARN_CHECK(file_.read(buffer_.first(n_padded)));
  const auto bytes = buffer_.first(head_.manifest_bytes);
  if (crc_.bytes(bytes.data(), bytes.size()) != head_.manifest_crc) {
    return damaged_session_file("manifest");
  }
  if (!is_zero(buffer_.first(n_padded).subspan(bytes.size()))) {
    return damaged_session_file("padding");
  }
  const auto manifest = decode_manifest(crc_, bytes);
  if (!manifest && manifest.error().status == Status::unsupported) return fail(manifest.error());
  if (!manifest) return damaged_session_file(manifest.error().detail.c_str());
  if (manifest->identity.n_cache_layers != head_.n_layers) return damaged_session_file("n_layers");
  if (end_page() > pages_of(*manifest)) return damaged_session_file("n_pages");
  const auto bytes_of_group = group_bytes(manifest->identity);
  if (!bytes_of_group) {
    return fail({.status = Status::unsupported,
                 .hint = "this session's KV is of a type that this version of Tarn does not have: "
                         "take it up with the one that made it"});
  }
  if (head_.n_pages > 0 && head_.group_bytes != *bytes_of_group) {
    return damaged_session_file("group_bytes");
  }
  if (pages_of(*manifest) > pages_max_) return too_long(manifest->name);
  return *manifest;
}

Result<void> PackReader::read_group(u64 group, std::span<std::byte> payload) {
  TARN_ASSERT(payload.size() == head_.group_bytes);
  const u64 first = u64{head_.first_page} * head_.n_layers;
  TARN_ASSERT(group >= first && group < u64{end_page()} * head_.n_layers);
  const u64 step = sizeof(SessionGroupHead) + head_.group_bytes;
  TARN_CHECK(file_.rewind(begin_ + session_groups_begin(head_) + (group - first) * step));
  SessionGroupHead found;
  TARN_CHECK(file_.read(std::as_writable_bytes(std::span(&found, 1))));
  TARN_CHECK(file_.read(payload));
  if (!(found == group_head_of(crc_, manifest_, head_, group, payload))) {
    return damaged_session_file("group", group / head_.n_layers);
  }
  return {};
}

}  // namespace tarn::reuse
