// K and V of a session's middle once more on disk, ordered by pairs of codes, as selection reads
// them. What a step wants of a (layer, KV head) are all tokens of its best pairs: a few runs here,
// and about as many sectors as tokens in the order of slots. A pair's tokens are neighbours, slots
// ascending, so the codes in memory tell each token's index, and no permutation is kept.
//
//   record    kind extent, of one head: record_tokens tokens of `slot_bytes` (K, V) without gaps.
//             Its key follows from what was drawn when it was laid out, so no later order is
//             mistaken for it
//   orders    a head's tokens lie there in one order of pairs or in two, so that what is scattered
//             in one may be a run in the other. An index counts over both: order 1 begins at
//             order_tokens(). Order 0 may be there alone, never order 1
//   groups    stay as they are. What an extent cannot give comes from them
//   building  begin(), put() and settle() record by record, finish(); or adopt()
//   budget    of the day's writes half is left to groups, which every step needs, and a second
//             order is worth less than another layer's first
//   thread    the engine's
//
// A codebook is a record of its own, of the bytes that a head's index is made of, and of what its
// extent is found by. A later start that has both makes neither again.
//
// Benefits: requests of a step by runs, not by tokens. Costs: the middle's bytes on disk once more
// for each order, written once for each clustering. In a full store they go before all else.
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/extent_reads.h"
#include "runtime/kv/mover.h"

namespace tarn::kv {

class Extents {
 public:
  struct Links {
    ExtentShape shape{};
    store::Store* store = nullptr;
    Mover* mover = nullptr;  // whose pump() brings our events
    Clock* clock = nullptr;
    u64 daily_write_bytes = 0;  // the store's
    u64 nonce = 0;              // of this opening of the store: keys never repeat
  };
  void init(const Links& links, std::span<std::byte> region);
  store::Key draw_key();
  bool is_on() const { return links_.shape.is_on(); }
  const ExtentShape& shape() const { return links_.shape; }
  std::span<std::byte> landing() const { return heads_.landing(); }  // for the disk to register

  // Begins a head's extent of slots [slot_begin, slot_end); erases the old one, unless another head
  // holds it, too.
  void begin(u32 head, u32 slot_begin, u32 slot_end, const ExtentName& name);
  // Returns what ExtentHeads does; the builder fills it.
  std::span<u32> firsts(u32 head, u32 order) const { return heads_.firsts(head, order); }
  std::span<const u32> firsts(u32 head) const { return heads_.firsts(head); }
  // Writes the record that begins at this token. `tokens` is a whole record's memory, and stays
  // ours until settle().
  void put(u32 head, u32 token_idx, std::span<std::byte> tokens, u32 n_tokens);
  // Waits for what was put. What fails leaves its head without that order.
  void settle();
  // Marks the extent as whole, and as that of the index at this address.
  void finish(u32 head, const void* index);
  // In place of begin() to finish(): the records of this name are there already, and firsts() as
  // they were in n_orders of them. Waits for the disk. Where not even the first order is whole they
  // are erased, and the head has no extent.
  void adopt(u32 head, u32 slot_begin, u32 slot_end, u32 n_orders, const ExtentName& name,
             const void* index);
  void forget(u32 head);
  void leave(u32 head);  // likewise, but its records stay for who adopts them
  void truncate(u32 head, u32 slot_end);
  const ExtentHead& head(u32 head) const { return heads_[head]; }
  ExtentReads& reads() { return reads_; }

  // Writes an owner's codebook of one of its heads, in place of an earlier one. `bytes`, as many
  // sectors as n_bytes take, are ours until settle().
  void put_codebook(const store::Key& owner, u32 head, std::span<std::byte> bytes, u64 n_bytes);
  // Waits for the disk. How many bytes of it are in `out`; 0: it is not there, or does not fit.
  u64 read_codebook(const store::Key& owner, u32 head, std::span<std::byte> out);
  void erase_codebook(const store::Key& owner, u32 head);
  void touch_codebook(const store::Key& owner, u32 head);  // used now

  void on_event(const store::Event& event);
  const ExtentStats& stats() const { return stats_; }

 private:
  store::Key key(const ExtentName& name, u64 order, u64 token_idx) const;
  std::optional<store::RecordRef> find_pinned(const store::Key& key, store::Kind kind);
  std::optional<store::RecordRef> find_codebook(const store::Key& owner, u32 head) {
    return find_pinned(key({.owner = owner, .head = head}, 0, 0), store::Kind::codebook);
  }
  bool write(store::PutArgs args, u32 order);
  void erase(store::RecordRef ref);
  void forget_orders(u32 head, u32 begin);

  Links links_{};
  ExtentHeads heads_{};
  ExtentReads reads_{};
  u32 n_puts_ = 0;  // under way
  u64 serial_ = 0;
  ExtentStats stats_{};
};

}  // namespace tarn::kv
