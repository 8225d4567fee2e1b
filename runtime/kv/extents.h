// runtime/kv/extents.h
//
// K and V of a session's middle once more on disk, in the order in which selection reads them. What
// one step wants of a (layer, KV head) are all tokens of its best pairs of codes: in the order of
// slots they lie in as many sectors as there are of them, in that of pairs in a few runs. Which
// token is where follows from the codes in memory: a pair's tokens lie behind one another, slots
// ascending, so no permutation is kept, and what is read is put back into the order of slots: no
// bit of an answer depends on where a token was read from.
//
//   record    kind extent, of one head: tokens of `slot_bytes` (K, V) without gaps, record_tokens
//             of them, of the pairs in the order that firsts() says. Its key follows from what was
//             drawn when it was laid out: found by who knows that, and never another time's order
//   codebook  a record beside them, of kind codebook: bytes that the head's index is made of, and
//             what its extent is found by. A later start that has both makes neither again
//   orders    a head's tokens lie there in one order of pairs or in two, so that what is scattered
//             in one may be a run in the other. A place counts over both: order 1 begins at
//             order_tokens(). Order 0 is there without order 1 where that one could not be written
//   groups    stay as they are, and exact attention knows nothing of this. What an extent cannot
//             give comes from them
//   building  begin(), put() and settle() record by record, finish(); or adopt()
//   reading   begin_reads(), then head by head add_reads(), as soon as what it wants is known:
//             sectors of wanted tokens, neighbours in one request, into a ring of memory of our
//             own, as far as it goes; finish_reads() waits until those of the first heads have
//             landed, while the others' are on their way; place() verifies a head's and puts them
//             where they belong; release_reads() gives their part of the ring back
//   checks    each sector that is wanted against its checksum in the record's head, which stays in
//             memory: 1/1024 of the bytes, and a request for a head less a read
//   memory    extents_bytes(); nothing else
//   thread    the engine's; place() any, one head at a time, while the engine's does nothing here
//             but the same
//
// Benefits: requests of a step by runs, not by tokens. Costs: the middle's bytes on disk once more
// for each order, written once for each clustering. In a full store they go before all else.
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/mover.h"

namespace tarn::kv {

inline constexpr u32 kExtentPieceSectors = 16;  // the longest request
inline constexpr u32 kExtentPiecesMax = 64;     // of the ring, each as long as that
inline constexpr u32 kExtentPartsMax = 256;     // requests under way, or not in place yet
inline constexpr u32 kExtentPutsMax = 64;
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
  u64 bytes() const;  // what init() wants, at a multiple of a sector
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

class Extents {
 public:
  static constexpr u64 kTag = u64{1} << 16;  // the store's operations from here on are ours
  static constexpr u32 kLost = ~u32{0};

  struct Args {
    ExtentShape shape{};
    store::Store* store = nullptr;
    Mover* mover = nullptr;  // whose pump() brings our events
    Clock* clock = nullptr;
    u64 daily_write_bytes = 0;  // the store's; half of it is left to what cannot do without
  };
  void init(const Args& args, std::span<std::byte> region);
  void set_nonce(u64 nonce) { nonce_ = nonce; }  // of this opening of the store: keys never repeat
  store::Key draw_key();
  bool is_on() const { return args_.shape.is_on(); }
  const ExtentShape& shape() const { return args_.shape; }
  std::span<std::byte> landing() const { return landing_; }  // for the disk to register

  // By which a head's records are found: of an owner's heads this one's, as laid out that time.
  struct Name {
    store::Key owner{};
    u64 version = 0;
    u32 head = 0;
  };
  // A head's extent of slots [slot_begin, slot_end) begins anew; the old one is erased, unless
  // another head holds it, too.
  void begin(u32 head, u32 slot_begin, u32 slot_end, const Name& name);
  // [n_pairs]: the place of each pair's first token in an order, counted from where that begins;
  // whoever builds fills it.
  std::span<u32> firsts(u32 head, u32 order) const;
  std::span<const u32> firsts(u32 head) const;  // [n_orders, n_pairs]
  // The record that begins at this place; `tokens` is a whole one's memory, ours until settle().
  void put(u32 head, u32 place, std::span<std::byte> tokens, u32 n_tokens);
  // Waits for what was put. What fails leaves its head without that order.
  void settle();
  // It is whole, and of the index at this address.
  void finish(u32 head, const void* index);
  // In place of begin() to finish(): the records of this name are there already, and firsts() as
  // they were in n_orders of them. Waits for the disk. Where not even the first order is whole they
  // are erased, and the head has no extent.
  void adopt(u32 head, u32 slot_begin, u32 slot_end, u32 n_orders, const Name& name,
             const void* index);
  void forget(u32 head);
  void leave(u32 head);  // likewise, but its records stay for who adopts them
  void forget_all();     // or a store that outlives us would keep what nobody finds

  // An owner's codebook of one of its heads. `bytes`, as many sectors as n_bytes take, are ours
  // until settle(). In place of one before.
  void put_codebook(const store::Key& owner, u32 head, std::span<std::byte> bytes, u64 n_bytes);
  // Waits for the disk. How many bytes of it are in `out`; 0: it is not there, or does not fit.
  u64 read_codebook(const store::Key& owner, u32 head, std::span<std::byte> out);
  void erase_codebook(const store::Key& owner, u32 head);
  void touch_codebook(const store::Key& owner, u32 head);  // used now
  void truncate(u32 head, u32 slot_end);

  bool is_of(u32 head, const void* index) const { return heads_[head].index == index; }
  const Name& name(u32 head) const { return heads_[head].name; }
  u32 n_orders(u32 head) const { return heads_[head].n_orders; }
  u32 slot_begin(u32 head) const { return heads_[head].slot_begin; }
  u32 slot_end(u32 head) const { return heads_[head].slot_end; }

  // A token in the extent, and its place in what is read.
  struct Want {
    u32 place = 0;  // kLost after place(): it is to be had elsewhere
    u32 rank = 0;
  };
  struct Reading {
    u32 head = 0;
    std::span<Want> wants{};  // places ascending
    u8* out = nullptr;        // K and V of `rank` at rank * slot_bytes
    u32 n_lost = 0;           // of the wants, after place()
    u32 n_parts = 0;          // requests under way
    u32 n_parts_begun = 0;
    u64 part_begin = 0, part_end = 0;  // their numbers
    u64 bytes_used = 0;
  };
  // Readings that are ours until end_reads(); the first n of them are complete and may begin.
  void begin_reads(std::span<Reading> readings);
  void add_reads(u32 n);
  // Waits until what the first n, which were added, want has landed, or is lost.
  void finish_reads(u32 n);
  // After finish_reads(): what has landed for this one is verified, and its tokens put into `out`.
  void place(u32 reading_idx);
  void release_reads(u32 n);  // the first n, which are in place
  void end_reads();           // nobody wants what is still on its way

  void on_event(const store::Event& event);
  const ExtentStats& stats() const { return stats_; }

 private:
  struct Head {
    Name name{};
    const void* index = nullptr;  // that it follows; nullptr: there is none
    u32 slot_begin = 0, slot_end = 0;
    u32 n_orders = 0;                                // that can be read
    std::array<bool, kExtentOrdersMax> is_broken{};  // while it is built
  };
  // A request, from its begin until its tokens are in place; or a record's head that is brought.
  enum class Stage : u8 { under_way, landed, over };
  struct Part {
    Stage stage = Stage::over;
    bool is_lent = false;     // over, but the disk still has the memory: the store is off
    bool is_corrupt = false;  // over, and the record is to be dropped
    Reading* reading = nullptr;
    u32 want_begin = 0, want_end = 0;
    u32 record = 0;
    u32 first_sector = 0, n_sectors = 0;
    u32 at = 0;                // in the ring, in sectors
    u32 n_taken = 0;           // of it, with what is left over at its end
    std::byte* out = nullptr;  // of a codebook: where what has landed is wanted
  };
  struct Put {
    bool is_used = false;
    bool is_codebook = false;  // and of none of these
    u32 head = 0, record = 0;
  };
  enum class Kind : u8 { part, put, erase };

  std::span<std::byte> landed(const Part& part) const;
  Part& part(u64 number) { return parts_[number % kExtentPartsMax]; }
  u32 records_of_head() const { return args_.shape.n_orders * args_.shape.records_max; }
  std::span<store::RecordRef> records(u32 head) const;
  std::span<std::byte> record_head(u32 head, u32 record) const;
  Part next_part(Reading& reading, u32 want_begin) const;
  bool find_room(Part* part) const;
  bool is_stuck() const;
  store::Begun begin_part(const Part& part);
  store::Begun begin_read(const Part& part, store::ReadArgs args);
  template <class Fn>
  void ask(Part part, Fn&& begin);
  bool affords(u64 n_bytes, u32 order) const;
  bool begin_put(store::PutArgs args, const Put& put);
  store::Key record_key(const Name& name, u32 record) const;
  store::Key codebook_key(const store::Key& owner, u32 head) const;
  void read_more();
  void place_part(Part& part) const;
  void place_oldest();
  void free_parts();
  void load_heads(u32 head, u32 order);
  void forget_orders(u32 head, u32 begin);
  static void lose(const Part& part);
  void end_part(Part& part, const store::Event& event);
  void end_put(Put& put, const store::Event& event);
  void erase(store::RecordRef ref);
  std::optional<store::RecordRef> find(const store::Key& key, store::Kind kind) const;

  Args args_{};
  std::span<std::byte> landing_{};       // the ring: [n_pieces] of kExtentPieceSectors
  std::span<std::byte> record_heads_{};  // [n_heads, n_orders, records_max] sectors
  std::span<u32> firsts_{};              // [n_heads, n_orders, n_pairs]
  std::span<store::RecordRef> refs_{};   // [n_heads, n_orders, records_max]
  std::span<Head> heads_{};
  std::array<Part, kExtentPartsMax> parts_{};  // by number
  u64 part_begin_ = 0, part_end_ = 0;          // the numbers of those that have memory in the ring
  u32 ring_end_ = 0, n_ring_taken_ = 0;        // sectors: where the next part goes, all parts'
  std::array<Put, kExtentPutsMax> puts_{};
  u32 n_parts_ = 0, n_puts_ = 0;  // under way
  std::span<Reading> readings_{};
  u32 n_added_ = 0;  // of them
  u32 next_reading_ = 0, next_want_ = 0;
  u64 nonce_ = 0, serial_ = 0;
  ExtentStats stats_{};
};

}  // namespace tarn::kv
