// The KV of one conversation: for every cache layer a table of groups, in slot order. All layers
// have the same number of slots. Groups before the tail are sealed and may be shared; only the tail
// group of a layer is writable, and it belongs to this sequence alone.
//
//   tables     [n_cache_layers, groups_per_layer_max] GroupRef
//   ownership  holds one reference to each of its groups: clear() alone gives all of them back
//   thread     engine thread only
//
// Invariant: n_slots <= n_reserved <= slots_max;
//            groups of a layer = ceil(n_reserved / page_tokens);
//            a group is sealed iff all its slots are below n_slots, else it has this one owner.
#pragma once

#include <span>

#include "runtime/kv/group_pool.h"

namespace tarn::kv {

class Sequence {
 public:
  // Counts the entries of the tables of such a sequence.
  static u64 n_entries(u32 n_cache_layers, u32 slots_max, u32 page_tokens);
  void init(GroupPool* pool, u32 n_cache_layers, u32 slots_max, std::span<GroupRef> tables);

  // Makes room for `n` more slots in every layer, all or nothing. false: the pool is exhausted, or
  // slots_max would be passed.
  bool reserve(u32 n);

  // Returns where K and V of (layer, kv head) of a reserved, not yet committed slot go: 2 *
  // vector_bytes.
  u8* slot_for_write(u32 cache_layer, u32 kv_head, u32 slot);
  // Marks reserved slots [n_slots, n_slots + n) as written; seals groups that became full.
  void commit(u32 n);
  // Gives back reserved slots that were not committed.
  void abandon();

  // Keeps the first n slots (n <= n_slots) and gives back what was reserved. If the cut lies inside
  // a sealed group, that group becomes the writable tail again; one that others share is copied for
  // it (false if the pool has no group left for that; then nothing changed).
  bool truncate(u32 n);
  // Returns whether there is room for truncate(n_kept) and then for n_slots in all.
  bool has_room(u32 n_kept, u32 n_slots) const;
  // Takes sealed groups that others have, or that are idle, one a layer, as its next page: it is at
  // a page's begin. What was reserved of that page is given back. The caller knows that it fits.
  void adopt(std::span<const GroupRef> groups);
  // Takes sealed groups in place of its own ones of a committed page, which have the same bytes.
  void replace(u32 page, std::span<const GroupRef> groups);
  // Becomes a copy of the committed slots of `source` (this must be empty, of the same pool and
  // layers): full groups are shared, the tail is copied. All or nothing; false as for reserve().
  bool fork_from(const Sequence& source);
  void clear();

  u32 n_cache_layers() const { return n_cache_layers_; }
  u32 n_slots() const { return n_slots_; }
  u32 n_reserved() const { return n_reserved_; }
  // Pages of one KV head of one layer, of groups [begin, end), in slot order. Groups that may be on
  // disk are pinned.
  void pages(u32 cache_layer, u32 kv_head, u32 begin, u32 end, std::span<const u8*> out) const;
  GroupRef group(u32 cache_layer, u32 group_idx) const;
  // Returns where that group lies, for the tables of a GPU's kernels.
  u64 group_address(u32 cache_layer, u32 group_idx) const;
  // Returns the first group whose address may not be what it was at the last call; all before it
  // are unchanged. n_groups() if none.
  u32 take_changed_groups();

  // Groups in each layer's table.
  u32 n_groups() const;

 private:
  GroupRef& entry(u32 cache_layer, u32 group_idx);
  void drop_groups_from(u32 group_idx);

  GroupPool* pool_ = nullptr;
  std::span<GroupRef> tables_{};  // [n_cache_layers, groups_per_layer_max]
  u32 n_cache_layers_ = 0;
  u32 groups_per_layer_max_ = 0;
  u32 slots_max_ = 0;
  u32 n_slots_ = 0;
  u32 n_reserved_ = 0;    // slots with a place, >= n_slots
  u32 changed_from_ = 0;  // groups from here on may be new to who takes them
};

}  // namespace tarn::kv
