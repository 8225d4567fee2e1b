#include "runtime/store/record.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "platform/base/assert.h"

namespace tarn::store {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::array<char, 8> kRecordMagic = {'T', 'A', 'R', 'N', 'R', 'E', 'C', '1'};
constexpr std::array<char, 8> kLabelMagic = {'T', 'A', 'R', 'N', 'S', 'T', 'O', 'R'};
constexpr u64 kCrcAt = sizeof(RecordHead) - sizeof(u32);
constexpr u64 kLabelCrcAt = kSectorBytes - sizeof(u32);

bool all_zero(std::span<const u32> words) {
  return std::all_of(words.begin(), words.end(), [](u32 word) { return word == 0; });
}

}  // namespace

u32 sector_crc(const Crc32c& crc, std::span<const std::byte> sector, u64 crc_at) {
  alignas(8) std::array<std::byte, kSectorBytes> copy;
  std::memcpy(copy.data(), sector.data(), kSectorBytes);
  std::memset(copy.data() + crc_at, 0, sizeof(u32));
  return crc.bytes(copy.data(), kSectorBytes);
}

void encode_head(const Crc32c& crc, const FrameRef& frame, const RecordArgs& args,
                 std::span<std::byte> head) {
  const RecordShape shape{.payload_bytes = args.payload_bytes,
                          .n_tokens = static_cast<u32>(args.token_ids.size())};
  const u64 n_sectors = shape.payload_sectors();
  TARN_ASSERT(shape.within_limits());
  TARN_ASSERT(head.size() == shape.head_bytes());
  TARN_ASSERT(args.payload.size() == n_sectors * kSectorBytes);
  std::memset(head.data(), 0, head.size());
  RecordHead fixed{.magic = kRecordMagic,
                   .version = kFormatVersion,
                   .kind = static_cast<u32>(args.kind),
                   .generation = args.generation,
                   .payload_bytes = args.payload_bytes,
                   .key = args.key,
                   .store_id = frame.store_id,
                   .frame_idx = frame.frame_idx,
                   .n_frames = shape.frames(frame.frame_bytes),
                   .n_tokens = shape.n_tokens,
                   .n_meta_sectors = shape.meta_sectors(),
                   .budget_left_bytes = args.budget_left_bytes,
                   .written_bytes = args.written_bytes};
  auto* words = reinterpret_cast<u32*>(head.data() + sizeof fixed);
  u32* meta = words;  // inline, or after the head sector
  if (shape.meta_sectors() > 0) meta = reinterpret_cast<u32*>(head.data() + kSectorBytes);
  std::copy(args.token_ids.begin(), args.token_ids.end(), meta);
  crc.sectors(args.payload.data(), n_sectors, meta + shape.n_tokens);
  if (shape.meta_sectors() > 0) {
    crc.sectors(head.data() + kSectorBytes, shape.meta_sectors(), words);
  }
  std::memcpy(head.data(), &fixed, sizeof fixed);
  fixed.head_crc = crc.bytes(head.data(), kSectorBytes);
  std::memcpy(head.data(), &fixed, sizeof fixed);
}

std::optional<HeadView> parse_head(const Crc32c& crc, const FrameRef& frame,
                                   std::span<const std::byte> sector) {
  TARN_ASSERT(sector.size() >= kSectorBytes);
  const auto* head = reinterpret_cast<const RecordHead*>(sector.data());
  if (head->magic != kRecordMagic || head->version != kFormatVersion) return std::nullopt;
  if (head->head_crc != sector_crc(crc, sector, kCrcAt)) return std::nullopt;
  // These bytes are a valid head, but perhaps of another frame or store.
  if (head->store_id != frame.store_id || head->frame_idx != frame.frame_idx) return std::nullopt;
  const RecordShape shape{head->payload_bytes, head->n_tokens};
  const bool is_grave = head->kind == static_cast<u32>(Kind::erased) && head->key == Key{} &&
                        shape.payload_bytes == 0 && shape.n_tokens == 0;
  if ((head->kind < 1 || head->kind > kKinds) && !is_grave) return std::nullopt;
  if (!shape.within_limits() || head->n_meta_sectors != shape.meta_sectors()) return std::nullopt;
  if (head->n_frames != shape.frames(frame.frame_bytes)) return std::nullopt;
  if (frame.frame_idx >= frame.n_frames || head->n_frames > frame.n_frames - frame.frame_idx) {
    return std::nullopt;
  }
  const auto* words = reinterpret_cast<const u32*>(sector.data() + sizeof(RecordHead));
  const u64 n_inline =
      shape.meta_sectors() > 0 ? shape.meta_sectors() : shape.n_tokens + shape.payload_sectors();
  const std::span<const u32> all(words, kHeadWords);
  const bool has_reserved = head->reserved_0 != 0 || head->reserved_1 != 0;
  if (has_reserved || !all_zero(head->reserved) || !all_zero(all.subspan(n_inline))) {
    return std::nullopt;
  }
  HeadView view;
  view.head_ = head;
  if (shape.meta_sectors() == 0) view.words_ = all.first(n_inline);
  return view;
}

bool is_damaged_head(const Crc32c& crc, const FrameRef& frame, std::span<const std::byte> sector) {
  TARN_ASSERT(sector.size() >= kSectorBytes);
  const auto* head = reinterpret_cast<const RecordHead*>(sector.data());
  const bool was_head = head->magic == kRecordMagic || head->store_id == frame.store_id;
  return was_head && head->head_crc != sector_crc(crc, sector, kCrcAt);
}

bool parse_meta(const Crc32c& crc, std::span<const std::byte> whole_head, HeadView& view) {
  const RecordShape shape = view.shape();
  TARN_ASSERT(whole_head.size() >= shape.head_bytes());
  TARN_ASSERT(reinterpret_cast<const std::byte*>(view.head_) == whole_head.data());
  if (shape.meta_sectors() == 0) return true;
  const auto* crcs = reinterpret_cast<const u32*>(whole_head.data() + sizeof(RecordHead));
  std::array<u32, kMetaSectorsMax> found;
  crc.sectors(whole_head.data() + kSectorBytes, shape.meta_sectors(), found.data());
  if (!std::equal(crcs, crcs + shape.meta_sectors(), found.begin())) return false;
  const std::span<const u32> all(reinterpret_cast<const u32*>(whole_head.data() + kSectorBytes),
                                 u64{shape.meta_sectors()} * kSectorWords);
  const u64 n_used = shape.n_tokens + shape.payload_sectors();
  if (!all_zero(all.subspan(n_used))) return false;
  view.words_ = all.first(n_used);
  return true;
}

std::optional<HeadView> view_again(std::span<const std::byte> whole_head) {
  TARN_ASSERT(whole_head.size() >= kSectorBytes);
  HeadView view;
  view.head_ = reinterpret_cast<const RecordHead*>(whole_head.data());
  const RecordShape shape = view.shape();
  if (!shape.within_limits() || whole_head.size() != shape.head_bytes()) return std::nullopt;
  const u64 begin = shape.meta_sectors() == 0 ? sizeof(RecordHead) : kSectorBytes;
  view.words_ = {reinterpret_cast<const u32*>(whole_head.data() + begin),
                 shape.n_tokens + shape.payload_sectors()};
  return view;
}

bool sectors_hold(const Crc32c& crc, const std::byte* sectors, std::span<const u32> crcs) {
  constexpr u64 kCrcsAtOnce = 64;
  std::array<u32, kCrcsAtOnce> found;
  for (u64 i = 0; i < crcs.size(); i += kCrcsAtOnce) {
    const u64 n_now = std::min(kCrcsAtOnce, crcs.size() - i);
    crc.sectors(sectors + i * kSectorBytes, n_now, found.data());
    if (!std::equal(found.begin(), found.begin() + n_now, crcs.data() + i)) return false;
  }
  return true;
}

void encode_label(const Crc32c& crc, const Label& label, std::span<std::byte> sector) {
  TARN_ASSERT(sector.size() == kSectorBytes);
  std::memset(sector.data(), 0, sector.size());
  Label written = label;
  written.magic = kLabelMagic;
  written.version = kFormatVersion;
  std::memcpy(sector.data(), &written, sizeof written);
  const u32 value = crc.bytes(sector.data(), kSectorBytes);
  std::memcpy(sector.data() + kLabelCrcAt, &value, sizeof value);
}

LabelState parse_label(const Crc32c& crc, std::span<const std::byte> sector, Label& label) {
  TARN_ASSERT(sector.size() == kSectorBytes);
  Label found;
  u32 value = 0;
  std::memcpy(&found, sector.data(), sizeof found);
  std::memcpy(&value, sector.data() + kLabelCrcAt, sizeof value);
  // Later formats keep the magic, the version and the position of the checksum.
  if (found.magic != kLabelMagic || value != sector_crc(crc, sector, kLabelCrcAt)) {
    return LabelState::absent;
  }
  if (found.version > kFormatVersion) return LabelState::newer;
  if (found.version != kFormatVersion) return LabelState::absent;
  for (u64 i = sizeof found; i < kLabelCrcAt; ++i) {
    if (sector[i] != std::byte{0}) return LabelState::absent;
  }
  // No store has such frames, and frames below a sector would cause a division by zero.
  if (found.frame_bytes < 2 * kSectorBytes || found.frame_bytes % kSectorBytes != 0) {
    return LabelState::absent;
  }
  label = found;
  return LabelState::good;
}

}  // namespace tarn::store
