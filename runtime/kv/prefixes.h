// KV that is not computed twice: prefixes of whole pages that some sequence has computed, in memory
// or on the disk (METHODS 11.3 and 12.2; the tree of pages in memory is prefix_index.h).
//
//   look-up   page by page, from the first one on: in memory, else in the store. It ends where
//             neither has the next page
//   idle      pages that leave and are wanted (prefix_index.h) are written before, where there is a
//             store
//   thread    the engine's
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/prefix_index.h"
#include "runtime/kv/reused.h"
#include "runtime/kv/tiers.h"

namespace tarn::kv {

class Prefixes {
 public:
  struct Links {
    GroupPool* pool = nullptr;
    Tiers* tiers = nullptr;  // nullptr: all KV is in memory
    u32 n_cache_layers = 0;
    bool reuses = false;  // else nothing is found
  };
  void init(const Links& links) { links_ = links; }
  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }

  // Gives the sequence, whose first slots hold the KV of the first ids, the pages that follow and
  // are there, of any sequence or of none. Slots that it had reserved, and those of a tail that
  // such a page replaces, are given back then. It takes at most n_from_disk_max tokens of pages on
  // the disk.
  Reused take(Sequence& sequence, const store::Key& root, std::span<const u32> ids,
              u32 n_from_disk_max = ~u32{0});
  // Lists the sequence's committed pages [begin, end), which follow from these ids, so that they
  // are found from now on. A page that is in memory already, or in use, replaces the sequence's
  // own. Those that are found stay as they are.
  void list(Sequence& sequence, const store::Key& root, std::span<const u32> ids, u32 begin,
            u32 end);
  // Counts the first ids that are in pages that are there: what take() would take of an empty
  // sequence.
  Reused cached(const store::Key& root, std::span<const u32> ids) const;
  // Drops the sequence's KV, whose tokens may come again: pages that are found by them are written
  // to the disk, where there is one, before they leave.
  void evict(Sequence& sequence);
  // Returns whether there is such a page.
  bool has(const store::Key& chain, std::span<const u32> page_ids) const;
  // Drops the page, if no sequence has it and nothing follows it; with_what_follows, that first.
  void drop_idle(const store::Key& chain, std::span<const u32> page_ids, bool with_what_follows);
  // Returns whether all of this page of the sequence is in memory.
  bool is_here(const Sequence& sequence, u32 at) const;
  // Makes the sequence's next page, which is reserved, the one whose record of cache layer l is
  // find(l). False where one is missing: then nothing is reserved.
  template <class Find>
  bool adopt_records(Sequence& sequence, Find&& find);
  // Begins, where groups run short, to write idle pages that are wanted, those that leave next:
  // what is dropped then is found on the disk.
  void save_idle();

 private:
  bool take_page(Sequence& sequence, const store::Key& chain, u32 before,
                 std::span<const u32> page_ids, u32 n_from_disk_max, Reused* reused);
  // Returns whether a part of the page has to be read.
  bool is_away(u32 page) const { return is_in(page, Where::disk) || is_in(page, Where::loading); }
  u32 find_page(const store::Key& chain, std::span<const u32> page_ids);
  bool is_in(u32 page, Where where) const;
  std::optional<store::RecordRef> record(const store::Key& chain, u32 cache_layer) const;

  Links links_{};
  PrefixIndex index_{};
  u64 looked_at_ = ~u64{0};  // where save_idle() found nothing to write
};

template <class Find>
bool Prefixes::adopt_records(Sequence& sequence, Find&& find) {
  const u32 page_tokens = links_.pool->shape().page_tokens, at = sequence.n_slots() / page_tokens;
  for (u32 layer = 0; layer < links_.n_cache_layers; ++layer) {
    const std::optional<store::RecordRef> ref = find(layer);
    if (!ref) {
      sequence.abandon();
      return false;
    }
    links_.tiers->residency.adopt(sequence.group(layer, at).idx, *ref);
  }
  sequence.commit(page_tokens);
  return true;
}

}  // namespace tarn::kv
