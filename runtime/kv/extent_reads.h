// The heads with extents (extents.h): how each was laid out, its records, and the heads of these,
// which hold the checksums of their sectors. And reads of tokens out of the records, through a ring
// of memory.
//
//   a layer   begin(); then head by head add(), as soon as what the head wants is known. Sectors of
//             wanted tokens come into the ring, neighbours in one request, as far as it goes.
//             finish() waits for those of the first heads, while the others' are on their way;
//             deliver() verifies a head's and copies its tokens out; release() frees their memory
//   checks    each wanted sector against its checksum in the record's head, which stays in memory:
//             1/1024 of the bytes, and a request for a head less a read
//   memory    ExtentShape::bytes()
//   thread    the engine's; deliver() any, one head at a time, while the engine's does nothing here
//             but the same
#pragma once

#include <array>
#include <span>

#include "runtime/arena/carver.h"
#include "runtime/kv/mover.h"

namespace tarn::kv {

inline constexpr u32 kExtentPieceSectors = 16;  // the longest request
inline constexpr u64 kExtentPieceBytes = kExtentPieceSectors * store::kSectorBytes;
inline constexpr u32 kExtentPiecesMax = 64;  // of the ring, each as long as that
inline constexpr u32 kExtentOrdersMax = 2;

// The shape of one engine's extents; the planner makes it.
struct ExtentShape {
  u32 slot_bytes = 0;
  u32 n_pairs = 0;        // of codes
  u32 record_tokens = 0;  // of one record
  u32 records_max = 0;    // of one head, in each order
  u32 n_orders = 1;       // 0: codebooks alone are read and written
  u32 n_heads = 0;        // (session, cache layer, KV head) triples
  u32 n_pieces = 0;       // 0: there are no extents
  bool is_on() const { return n_pieces > 0; }
  u64 record_bytes() const;  // padded to sectors
  u32 order_tokens() const { return records_max * record_tokens; }
  // Returns the sector of a byte of the token, counted over all records of a head.
  u32 sector_of(u32 token_idx, u32 byte) const;
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
  ExtentHead& operator[](u32 head) const { return heads_[head]; }
  // [n_pairs]: the index of each pair's first token in an order, counted from where that begins.
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

inline constexpr u64 kExtentTag = u64{1} << 16;  // the store's operations from here on are ours
inline constexpr u32 kExtentPartsMax = 256;      // requests under way, or not delivered yet
inline constexpr u32 kExtentLost = ~u32{0};

// A token's index in the extent, and its rank in what is read.
struct ExtentWant {
  u32 token_idx = 0;  // kExtentLost after deliver(): it is to be had elsewhere
  u32 rank = 0;
};
struct ExtentReading {
  u32 head = 0;
  std::span<ExtentWant> wants{};     // indexes ascending
  u8* out = nullptr;                 // K and V of `rank` at rank * slot_bytes
  u32 n_lost = 0;                    // of the wants, after deliver()
  u32 n_parts = 0;                   // requests under way
  u64 part_begin = 0, part_end = 0;  // their numbers
  u64 bytes_used = 0;
};

class ExtentReads {
 public:
  struct Links {
    const ExtentHeads* heads = nullptr;
    store::Store* store = nullptr;
    Mover* mover = nullptr;  // whose pump() brings our events
    Clock* clock = nullptr;
    ExtentStats* stats = nullptr;
  };
  void init(const Links& links);

  // Readings that are ours until end(); the first n of them are complete and may begin.
  void begin(std::span<ExtentReading> readings);
  void add(u32 n);
  // Waits until what the first n, which were added, want has landed, or is lost.
  void finish(u32 n);
  // After finish(): what has landed for this one is verified, and its tokens put into `out`.
  void deliver(u32 reading_idx);
  void release(u32 n);  // the first n, which are delivered
  void end();           // drops what is still on its way

  // Brings the heads of a head's records [begin, end), with their checksums, which stay. Waits for
  // the disk. False where one is lost.
  bool load_record_heads(u32 head, u32 begin, u32 end);
  // Reads the first sectors of any record that is pinned, and waits.
  bool read(store::RecordRef ref, u64 n_sectors, std::byte* out);

  void take(const store::Event& event);

 private:
  // A request, from its begin until its tokens are delivered; or a record's head that is brought.
  enum class Stage : u8 { under_way, landed, over };
  struct Part {
    Stage stage = Stage::over;
    bool is_lent = false;     // over, but the disk still has the memory: the store is off
    bool is_corrupt = false;  // over, and the record is to be dropped
    ExtentReading* reading = nullptr;
    u32 want_begin = 0, want_end = 0;
    u32 record = 0;
    u32 first_sector = 0, n_sectors = 0;
    u32 at = 0;                // in the ring, in sectors
    u32 n_taken = 0;           // of it, with what is left over at its end
    std::byte* out = nullptr;  // of read(): where what has landed is wanted
  };

  std::span<std::byte> landed(const Part& part) const;
  Part& part(u64 number) { return parts_[number % kExtentPartsMax]; }
  Part next_part(ExtentReading& reading, u32 want_begin) const;
  bool find_room(Part* part) const;
  bool is_stuck() const;
  store::Begun begin_part(const Part& part);
  store::Begun begin_read(const Part& part, store::ReadArgs args);
  template <class Fn>
  void ask(Part part, Fn&& begin);
  void read_more();
  void deliver_part(Part& part) const;
  void deliver_oldest();
  void free_parts();
  static void lose(const Part& part);

  Links links_{};
  std::array<Part, kExtentPartsMax> parts_{};  // by number
  u64 part_begin_ = 0, part_end_ = 0;          // the numbers of those that have memory in the ring
  u32 ring_end_ = 0, n_ring_taken_ = 0;        // sectors: where the next part goes, all parts'
  u32 n_parts_ = 0;                            // under way
  std::span<ExtentReading> readings_{};
  u32 n_added_ = 0;  // of them
  u32 next_reading_ = 0, next_want_ = 0;
};

}  // namespace tarn::kv
