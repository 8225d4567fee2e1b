// The names of a saved session's pages in the store. A page whose KV follows from its tokens is
// listed in the prefix index, so that equal prefixes have equal records. A page with approximate KV
// has a private key, which is not found by its tokens: only a manifest names it.
//
//   thread   the engine's
#pragma once

#include <array>
#include <span>

#include "runtime/kv/kv_cache.h"

namespace tarn::reuse {

// Keys of private tails that may lie on the disk for a session's name, oldest first. Of those that
// no manifest will name any more the last ones are remembered.
struct PrivateTails {
  std::array<store::Key, 4> keys{};
  u32 n = 0;
  u32 n_slots = 0;  // whose tail the last one is, as long as none of them is cut off; 0: none is
  void put(const store::Key& key, u32 of_slots);
};

class PageKeys {
 public:
  void init(kv::KvCache* kv) {
    kv_ = kv;
    n_private_ = 0;
  }

  // Pages [begin, end) of the sequence were sealed, and are not listed: they get private keys,
  // `keys`, the first for page `begin`, or new ones.
  void name_private(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin, u32 end,
                    std::span<const store::Key> keys = {});
  // The sequence's pages in a row, from the first on, that have keys.
  u32 n_named_pages(const kv::Sequence& sequence) const;

  const store::Key& page(const kv::Sequence& sequence, u32 page) const {  // that has a key
    return pages().node(pages().page_of(sequence, page)).chain;
  }
  // Returns the key of a page that is not full: these tokens behind the first n_pages.
  store::Key tail(const kv::Sequence& sequence, const store::Key& root, u32 n_pages,
                  std::span<const u32> ids) const {
    const u32 before = n_pages == 0 ? kv::kNoPage : pages().page_of(sequence, n_pages - 1);
    return pages().chain_of(root, before, ids);
  }
  store::Key new_private();

 private:
  const kv::PrefixIndex& pages() const { return kv_->prefixes().index(); }
  u32 page_tokens() const { return kv_->pool().shape().page_tokens; }

  kv::KvCache* kv_ = nullptr;
  u64 n_private_ = 0;
};

}  // namespace tarn::reuse
