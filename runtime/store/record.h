// runtime/store/record.h
//
// The bytes of the store's file, format version 1. Everything is little-endian; a number that says
// so is part of the format. Bytes come from a disk and are checked, never believed.
//
//   file     [label][label again][frame 0][frame 1]...   a label is a sector of 4 KiB
//   frame    frame_bytes (a multiple of 4 KiB); a record begins at a frame and takes one or more
//   record   [head sector][meta sectors, often none][payload, padded to 4 KiB]
//   head     RecordHead (128 bytes), then 992 words of u32:
//              either   the token ids, then the CRC32C of each 4 KiB of the padded payload
//              or, where that is too long for the sector,   the CRC32C of each meta sector; the
//              meta sectors then hold the token ids and the CRC32Cs, one behind the other
//              then zeros
//   grave    a head alone, of the kind `erased`: the record that began here is no more. It says
//            what every head says of the write budget, which the youngest head is asked for
//
// A record of 4,096 tokens and 16 MiB (an extent) has 8,192 words to carry, more than a sector
// holds, hence the meta sectors: one more level of the same checksums, and the head sector still
// vouches for every byte of the record.
//
// The label says how the file is cut and has the secret of the keys. It says nothing of any record:
// which records there are is known from their heads alone.
//
// Cost of a record of 256 KiB: 4 KiB of head, 1.6 %.
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

// `erased` is no record's: it is what parse_head() finds at a grave, with nothing else in it.
enum class Kind : u8 { group = 1, extent = 2, manifest = 3, codebook = 4, erased = 5 };
inline constexpr u32 kKinds = 4;
const char* kind_name(Kind kind);

struct RecordHead {
  std::array<char, 8> magic{};
  u32 version = 0;
  u32 kind = 0;
  u64 generation = 0;  // of the store, counts records; the younger of two wins
  u64 payload_bytes = 0;
  Key key{};
  u64 store_id = 0;   // the label's
  u32 frame_idx = 0;  // where this record belongs; elsewhere it is a misdirected write
  u32 n_frames = 0;
  u32 n_tokens = 0;
  u32 reserved_0 = 0;
  u32 n_meta_sectors = 0;
  u32 reserved_1 = 0;
  u64 budget_left_bytes = 0;  // of the write budget, when this head was written
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

// What a record of these figures takes. Pure.
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

// Whether records of this size may lie in a file of such frames: not in one of quite another model,
// where they would leave most of each frame empty, or take many each.
constexpr bool frames_suit(u64 frame_bytes, u64 record_bytes) {
  constexpr u64 kFactor = 4;
  return frame_bytes <= kFactor * record_bytes && record_bytes <= kFactor * frame_bytes;
}

// Where bytes were found and what they must agree with.
struct Place {
  u64 store_id = 0;
  u64 frame_bytes = 0;
  u32 n_frames = 0;  // of the store
  u32 frame_idx = 0;
};

struct RecordArgs {
  Kind kind = Kind::group;
  Key key{};
  std::span<const u32> token_ids{};
  std::span<const std::byte>
      payload{};  // a multiple of 4 KiB; what follows payload_bytes is padding
  u64 payload_bytes = 0;
  u64 generation = 0;
  u64 budget_left_bytes = 0;
  u64 written_bytes = 0;
};
// Writes shape.head_bytes() into `head`, checksums of the payload included.
void encode_head(const Crc32c& crc, const Place& place, const RecordArgs& args,
                 std::span<std::byte> head);

// The parts of a head whose checksums hold. Points into the bytes that it was made from.
class HeadView {
 public:
  const RecordHead& head() const { return *head_; }
  RecordShape shape() const { return {head_->payload_bytes, head_->n_tokens}; }
  Kind kind() const { return static_cast<Kind>(head_->kind); }
  // Empty unless the meta sectors were given too.
  std::span<const u32> token_ids() const {
    return words_.first(words_.empty() ? 0 : head_->n_tokens);
  }
  std::span<const u32> payload_crcs() const {
    return words_.subspan(words_.empty() ? 0 : head_->n_tokens);
  }

 private:
  friend std::optional<HeadView> parse_head(const Crc32c&, const Place&,
                                            std::span<const std::byte>);
  friend bool parse_meta(const Crc32c&, std::span<const std::byte>, HeadView&);
  friend std::optional<HeadView> view_again(std::span<const std::byte>);
  const RecordHead* head_ = nullptr;
  std::span<const u32> words_{};  // token ids, then checksums
};

// Nothing if these bytes (a sector, 8-byte aligned) are not the head of a whole record at this
// place. Of a record without meta sectors everything can be had from it.
std::optional<HeadView> parse_head(const Crc32c& crc, const Place& place,
                                   std::span<const std::byte> sector);
// Whether these bytes were the head of a record of this store once, and are damaged: they have the
// head's magic or the store's id, and not their checksum. A write that was cut off looks so, too.
bool is_damaged_head(const Crc32c& crc, const Place& place, std::span<const std::byte> sector);
// Gives `view` its token ids and checksums out of the whole head (meta sectors included). False if
// a meta sector's checksum does not hold.
bool parse_meta(const Crc32c& crc, std::span<const std::byte> whole_head, HeadView& view);
// Of a whole head that both took before, in memory that nobody has written to since: no checksum is
// worked out. Nothing if it says that it is of another size.
std::optional<HeadView> view_again(std::span<const std::byte> whole_head);

// Whether these sectors have these checksums, one of each.
bool sectors_hold(const Crc32c& crc, const std::byte* sectors, std::span<const u32> crcs);

void encode_label(const Crc32c& crc, const Label& label, std::span<std::byte> sector);
enum class LabelState : u8 { good, absent, newer };  // newer: of a later format, not to be touched
LabelState parse_label(const Crc32c& crc, std::span<const std::byte> sector, Label& label);

}  // namespace tarn::store
