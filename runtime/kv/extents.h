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
//   orders    a head's tokens lie there in one order of pairs or in two, so that what is scattered
//             in one may be a run in the other. A place counts over both: order 1 begins at
//             order_tokens(). Order 0 is there without order 1 where that one could not be written
//   groups    stay as they are, and exact attention knows nothing of this. What an extent cannot
//             give comes from them
//   building  begin(), put() and settle() record by record, finish(); or adopt()
//   reading   reads() (extent_reads.h)
//   memory    ExtentShape::bytes(); nothing else
//   thread    the engine's
//
// Benefits: requests of a step by runs, not by tokens. Costs: the middle's bytes on disk once more
// for each order, written once for each clustering. In a full store they go before all else.
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/codebook_records.h"
#include "runtime/kv/extent_heads.h"
#include "runtime/kv/extent_reads.h"
#include "runtime/kv/extent_writes.h"
#include "runtime/kv/mover.h"

namespace tarn::kv {

class Extents {
 public:
  static constexpr u64 kTag = u64{1} << 16;  // the store's operations from here on are ours

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
  std::span<std::byte> landing() const { return reads_.landing(); }  // for the disk to register

  // A head's extent of slots [slot_begin, slot_end) begins anew; the old one is erased, unless
  // another head holds it, too.
  void begin(u32 head, u32 slot_begin, u32 slot_end, const ExtentName& name);
  // [n_pairs]: the place of each pair's first token in an order, counted from where that begins;
  // whoever builds fills it.
  std::span<u32> firsts(u32 head, u32 order) const { return heads_.firsts(head, order); }
  std::span<const u32> firsts(u32 head) const { return heads_.firsts(head); }
  // The record that begins at this place; `tokens` is a whole one's memory, ours until settle().
  void put(u32 head, u32 place, std::span<std::byte> tokens, u32 n_tokens);
  // Waits for what was put. What fails leaves its head without that order.
  void settle() { writes_.settle(); }
  // It is whole, and of the index at this address.
  void finish(u32 head, const void* index);
  // In place of begin() to finish(): the records of this name are there already, and firsts() as
  // they were in n_orders of them. Waits for the disk. Where not even the first order is whole they
  // are erased, and the head has no extent.
  void adopt(u32 head, u32 slot_begin, u32 slot_end, u32 n_orders, const ExtentName& name,
             const void* index);
  void forget(u32 head);
  void leave(u32 head);  // likewise, but its records stay for who adopts them
  void forget_all();     // or a store that outlives us would keep what nobody finds

  void truncate(u32 head, u32 slot_end);

  bool is_of(u32 head, const void* index) const { return heads_[head].index == index; }
  const ExtentName& name(u32 head) const { return heads_[head].name; }
  u32 n_orders(u32 head) const { return heads_[head].n_orders; }
  u32 slot_begin(u32 head) const { return heads_[head].slot_begin; }
  u32 slot_end(u32 head) const { return heads_[head].slot_end; }

  ExtentReads& reads() { return reads_; }
  CodebookRecords& codebooks() { return codebooks_; }
  void on_event(const store::Event& event);
  const ExtentStats& stats() const { return stats_; }

 private:
  store::Key record_key(const ExtentName& name, u32 record) const;
  std::optional<store::RecordRef> find(const store::Key& key) const;
  void forget_orders(u32 head, u32 begin);

  Args args_{};
  ExtentHeads heads_{};
  ExtentReads reads_{};
  ExtentWrites writes_{};
  CodebookRecords codebooks_{};
  u64 nonce_ = 0, serial_ = 0;
  ExtentStats stats_{};
};

}  // namespace tarn::kv
