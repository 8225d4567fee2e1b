// Reads of tokens out of the records of heads (extent_heads.h), through a ring of memory.
//
//   a layer   begin(); then head by head add(), as soon as what the head wants is known. Sectors of
//             wanted tokens come into the ring, neighbours in one request, as far as it goes.
//             finish() waits for those of the first heads, while the others' are on their way;
//             place() verifies a head's and copies its tokens out; release() frees their memory
//   checks    each wanted sector against its checksum in the record's head, which stays in memory:
//             1/1024 of the bytes, and a request for a head less a read
//   thread    the engine's; place() any, one head at a time, while the engine's does nothing here
//             but the same
#pragma once

#include <array>
#include <span>

#include "runtime/kv/extent_heads.h"
#include "runtime/kv/mover.h"

namespace tarn::kv {

inline constexpr u32 kExtentPartsMax = 256;  // requests under way, or not in place yet
inline constexpr u32 kExtentLost = ~u32{0};

// A token in the extent, and its place in what is read.
struct ExtentWant {
  u32 place = 0;  // kExtentLost after place(): it is to be had elsewhere
  u32 rank = 0;
};
struct ExtentReading {
  u32 head = 0;
  std::span<ExtentWant> wants{};  // places ascending
  u8* out = nullptr;              // K and V of `rank` at rank * slot_bytes
  u32 n_lost = 0;                 // of the wants, after place()
  u32 n_parts = 0;                // requests under way
  u32 n_parts_begun = 0;
  u64 part_begin = 0, part_end = 0;  // their numbers
  u64 bytes_used = 0;
};

class ExtentReads {
 public:
  struct Args {
    const ExtentHeads* heads = nullptr;
    store::Store* store = nullptr;
    Mover* mover = nullptr;  // whose pump() brings our events
    Clock* clock = nullptr;
    ExtentStats* stats = nullptr;
    u64 first_tag = 0;  // of kExtentPartsMax
  };
  void init(const Args& args);

  // Readings that are ours until end(); the first n of them are complete and may begin.
  void begin(std::span<ExtentReading> readings);
  void add(u32 n);
  // Waits until what the first n, which were added, want has landed, or is lost.
  void finish(u32 n);
  // After finish(): what has landed for this one is verified, and its tokens put into `out`.
  void place(u32 reading_idx);
  void release(u32 n);  // the first n, which are in place
  void end();           // nobody wants what is still on its way

  // Brings the heads of a head's records [begin, end), with their checksums, which stay. Waits for
  // the disk. False where one is lost.
  bool load_record_heads(u32 head, u32 begin, u32 end);
  // Likewise sectors of any record that is pinned.
  bool read(store::RecordRef ref, u64 n_sectors, std::byte* out);

  void take(const store::Event& event);

 private:
  // A request, from its begin until its tokens are in place; or a record's head that is brought.
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
  void place_part(Part& part) const;
  void place_oldest();
  void free_parts();
  static void lose(const Part& part);

  Args args_{};
  std::array<Part, kExtentPartsMax> parts_{};  // by number
  u64 part_begin_ = 0, part_end_ = 0;          // the numbers of those that have memory in the ring
  u32 ring_end_ = 0, n_ring_taken_ = 0;        // sectors: where the next part goes, all parts'
  u32 n_parts_ = 0;                            // under way
  std::span<ExtentReading> readings_{};
  u32 n_added_ = 0;  // of them
  u32 next_reading_ = 0, next_want_ = 0;
};

}  // namespace tarn::kv
