// The table of heads with extents (extents.h): how each was laid out, its records, and the heads of
// these records, which hold the checksums of their sectors.
//
//   memory   ExtentShape::bytes(), with the ring that reads land in
//   thread   the engine's; reads from any while it does not change
#pragma once

#include <array>
#include <span>

#include "runtime/arena/carver.h"
#include "runtime/store/store.h"

namespace tarn::kv {

inline constexpr u32 kExtentPieceSectors = 16;  // the longest request
inline constexpr u64 kExtentPieceBytes = kExtentPieceSectors * store::kSectorBytes;
inline constexpr u32 kExtentPiecesMax = 64;  // of the ring, each as long as that
inline constexpr u32 kExtentOrdersMax = 2;

// Of one engine; the planner's.
struct ExtentShape {
  u32 slot_bytes = 0;
  u32 n_pairs = 0;        // of codes
  u32 record_tokens = 0;  // of one record
  u32 records_max = 0;    // of one head, in each order
  u32 n_orders = 1;
  u32 n_heads = 0;   // (session, cache layer, KV head) triples
  u32 n_pieces = 0;  // 0: there are no extents
  bool is_on() const { return n_pieces > 0; }
  u64 record_bytes() const;  // padded to sectors
  u32 order_tokens() const { return records_max * record_tokens; }
  // Of a byte of the token there, counted over all records of a head.
  u32 sector_of(u32 place, u32 byte) const;
  u64 bytes() const;  // whole sectors
};

struct ExtentStats {
  u64 n_reads = 0;     // requests
  u64 bytes_read = 0;  // of them
  u64 bytes_used = 0;  // wanted tokens in them
  u64 bytes_written = 0;
  u64 wait_ns = 0;
  u64 n_lost = 0;                           // tokens that had to be had from their groups
  u64 n_codebooks_read = 0, n_adopted = 0;  // of heads
};

// By which a head's records are found: of an owner's heads this one's, as laid out that time.
struct ExtentName {
  store::Key owner{};
  u64 version = 0;
  u32 head = 0;
};

struct ExtentHead {
  ExtentName name{};
  const void* index = nullptr;  // that it follows; nullptr: there is none
  u32 slot_begin = 0, slot_end = 0;
  u32 n_orders = 0;                                // that can be read
  std::array<bool, kExtentOrdersMax> is_broken{};  // while it is built
};

class ExtentHeads {
 public:
  void init(Carver& carver, const ExtentShape& shape);

  const ExtentShape& shape() const { return shape_; }
  std::span<std::byte> landing() const { return landing_; }
  u32 size() const { return static_cast<u32>(heads_.size()); }
  ExtentHead& operator[](u32 head) const { return heads_[head]; }
  // [n_pairs]: the place of each pair's first token in an order, counted from where that begins.
  std::span<u32> firsts(u32 head, u32 order) const;
  std::span<const u32> firsts(u32 head) const;          // [n_orders, n_pairs]
  std::span<store::RecordRef> records(u32 head) const;  // [n_orders, records_max]
  std::span<std::byte> record_head(u32 head, u32 record) const;

 private:
  ExtentShape shape_{};
  std::span<std::byte> landing_{};       // [n_pieces] pieces
  std::span<std::byte> record_heads_{};  // [n_heads, n_orders, records_max] sectors
  std::span<u32> firsts_{};              // [n_heads, n_orders, n_pairs]
  std::span<store::RecordRef> refs_{};   // [n_heads, n_orders, records_max]
  std::span<ExtentHead> heads_{};
};

}  // namespace tarn::kv
