// The bytes of the store's file, format version 1. FORMAT.md has the layout; constants marked so
// are part of the format. Bytes from the disk are always checked.
//
// A record with more words (token ids and checksums) than its head sector holds has them in meta
// sectors. These are one more level of the same checksums, so the head sector still covers every
// byte of the record. The label has the file's layout and the secret of the keys, and nothing about
// records: only their heads tell which records exist.
#pragma once

#include <optional>
#include <span>

#include "platform/base/types.h"
#include "platform/cpu/crc32c.h"
#include "runtime/store/key.h"

namespace tarn::store {

inline constexpr u32 kFormatVersion = 1;
inline constexpr u64 kSectorBytes = 4096;
inline constexpr u64 kLabels = 2;
inline constexpr u64 kFramesBegin = kLabels * kSectorBytes;  // byte of the file
inline constexpr u32 kHeadWords = 992;
inline constexpr u32 kSectorWords = 1024;
inline constexpr u32 kTokensMax = 65536;            // of one record
inline constexpr u64 kPayloadBytesMax = 64 * kMiB;  // of one record
inline constexpr u32 kMetaSectorsMax = 80;          // for the two limits above
static_assert(kMetaSectorsMax * u64{kSectorWords} >= kTokensMax + kPayloadBytesMax / kSectorBytes);
static_assert(kMetaSectorsMax <= kHeadWords);

// `erased` is the kind of a grave, which is no record and has no other content.
enum class Kind : u8 { group = 1, extent = 2, manifest = 3, codebook = 4, erased = 5 };
inline constexpr u32 kKinds = 4;

struct RecordHead {
  std::array<char, 8> magic{};
  u32 version = 0;
  u32 kind = 0;
  u64 generation = 0;  // counts the store's records; the younger of two wins
  u64 payload_bytes = 0;
  Key key{};
  u64 store_id = 0;   // the label's
  u32 frame_idx = 0;  // the record's own frame; anywhere else it is a misdirected write
  u32 n_frames = 0;
  u32 n_tokens = 0;
  u32 reserved_0 = 0;
  u32 n_meta_sectors = 0;
  u32 reserved_1 = 0;
  u64 budget_left_bytes = 0;  // the write budget when this head was written
  u64 written_bytes = 0;      // of the store's life, likewise
  std::array<u32, 7> reserved{};
  u32 head_crc = 0;  // of the sector with this field as zero
};
static_assert(sizeof(RecordHead) == 128);
static_assert(sizeof(RecordHead) + kHeadWords * sizeof(u32) == kSectorBytes);

struct Label {
  std::array<char, 8> magic{};
  u32 version = 0;
  u32 n_frames = 0;
  u64 frame_bytes = 0;
  u64 store_id = 0;
  Secret secret{};
};
static_assert(sizeof(Label) == 224);

// The sizes of a record with these figures. Pure.
struct RecordShape {
  u64 payload_bytes = 0;
  u32 n_tokens = 0;
  constexpr u64 payload_sectors() const {
    return (payload_bytes + kSectorBytes - 1) / kSectorBytes;
  }
  constexpr u32 meta_sectors() const {
    const u64 words = n_tokens + payload_sectors();
    if (words <= kHeadWords) return 0;
    return static_cast<u32>((words + kSectorWords - 1) / kSectorWords);
  }
  constexpr u64 head_bytes() const { return (1 + u64{meta_sectors()}) * kSectorBytes; }
  constexpr u64 record_bytes() const { return head_bytes() + payload_sectors() * kSectorBytes; }
  constexpr u32 frames(u64 frame_bytes) const {
    return static_cast<u32>((record_bytes() + frame_bytes - 1) / frame_bytes);
  }
  constexpr bool within_limits() const {
    return payload_bytes <= kPayloadBytesMax && n_tokens <= kTokensMax;
  }
};

// Whether a file with such frames suits records of this size. In a file of a very different model a
// record would leave most of its frame empty, or take many frames.
constexpr bool frames_suit(u64 frame_bytes, u64 record_bytes) {
  constexpr u64 kFactor = 4;
  return frame_bytes <= kFactor * record_bytes && record_bytes <= kFactor * frame_bytes;
}

// The frame that bytes lie in, and the values that they must agree with.
struct FrameRef {
  u64 store_id = 0;
  u64 frame_bytes = 0;
  u32 n_frames = 0;  // of the store
  u32 frame_idx = 0;
};

struct RecordArgs {
  Kind kind = Kind::group;
  Key key{};
  std::span<const u32> token_ids{};
  std::span<const std::byte> payload{};  // a multiple of 4 KiB; padding follows payload_bytes
  u64 payload_bytes = 0;
  u64 generation = 0;
  u64 budget_left_bytes = 0;
  u64 written_bytes = 0;
};
// Writes shape.head_bytes() into `head`, with the checksums of the payload.
void encode_head(const Crc32c& crc, const FrameRef& frame, const RecordArgs& args,
                 std::span<std::byte> head);

// The parts of a verified head. Points into the bytes that it was made from.
class HeadView {
 public:
  const RecordHead& head() const { return *head_; }
  RecordShape shape() const { return {head_->payload_bytes, head_->n_tokens}; }
  Kind kind() const { return static_cast<Kind>(head_->kind); }
  // Empty unless parse_meta() had the meta sectors.
  std::span<const u32> token_ids() const {
    return words_.first(words_.empty() ? 0 : head_->n_tokens);
  }
  std::span<const u32> payload_crcs() const {
    return words_.subspan(words_.empty() ? 0 : head_->n_tokens);
  }

 private:
  friend std::optional<HeadView> parse_head(const Crc32c&, const FrameRef&,
                                            std::span<const std::byte>);
  friend bool parse_meta(const Crc32c&, std::span<const std::byte>, HeadView&);
  friend std::optional<HeadView> view_again(std::span<const std::byte>);
  const RecordHead* head_ = nullptr;
  std::span<const u32> words_{};  // token ids, then checksums
};

// Parses a sector, 8-byte aligned. Nothing if it is not the head of a whole record at this frame.
// The head of a record without meta sectors is complete.
std::optional<HeadView> parse_head(const Crc32c& crc, const FrameRef& frame,
                                   std::span<const std::byte> sector);
// Whether these bytes are a damaged head of this store: they have the head's magic or the store's
// id, but a wrong checksum. An interrupted write looks the same.
bool is_damaged_head(const Crc32c& crc, const FrameRef& frame, std::span<const std::byte> sector);
// Sets the token ids and checksums of `view` from the whole head with its meta sectors. False if a
// meta sector's checksum is wrong.
bool parse_meta(const Crc32c& crc, std::span<const std::byte> whole_head, HeadView& view);
// Parses a whole head that both functions accepted before, without checking it again; its memory
// must be unchanged. Nothing if the head has another size.
std::optional<HeadView> view_again(std::span<const std::byte> whole_head);

// Whether each sector has its checksum.
bool sectors_hold(const Crc32c& crc, const std::byte* sectors, std::span<const u32> crcs);

// The checksum of a sector, computed with its own field as zero.
u32 sector_crc(const Crc32c& crc, std::span<const std::byte> sector, u64 crc_at);

void encode_label(const Crc32c& crc, const Label& label, std::span<std::byte> sector);
enum class LabelState : u8 { good, absent, newer };  // newer: a later format, must not be changed
LabelState parse_label(const Crc32c& crc, std::span<const std::byte> sector, Label& label);

}  // namespace tarn::store
