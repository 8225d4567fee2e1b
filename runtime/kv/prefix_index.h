// Full pages by their content, over all sequences of a pool: a tree in which a page's parent has
// the tokens before it. METHODS calls it a radix tree; here an edge is a whole page, and the chain
// of keys is the path (RadixAttention, arXiv:2312.07104, section 3).
//
//   page      the groups of all cache layers over page_tokens slots, and their token ids. Its chain
//             key is of these tokens behind those before it, under a root (store/key.h)
//   listed    found by its tokens. KV that does not follow from tokens alone has a private key, and
//             is not listed
//   idle      no sequence holds a group of it. A listed page stays then, until its groups are asked
//             for
//   order     idle pages without children leave first, of these the least recently used one. So a
//             page never leaves before what follows it
//   thread    the engine's
//
// Invariant: each page has n_cache_layers sealed groups of the pool, which name it;
//            a page is in use iff a sequence holds all its groups, and then so is its parent;
//            the order has exactly the idle pages without children.
#pragma once

#include <optional>
#include <span>

#include "runtime/kv/free_list.h"
#include "runtime/kv/sequence.h"
#include "runtime/store/key.h"

namespace tarn::kv {

class PrefixIndex final : public PageOwner {
 public:
  struct Sizes {
    u32 n_pages = 0, n_cache_layers = 0, page_tokens = 0;
    bool keeps_idle = false;  // else a page goes with its last sequence
    GroupPool* pool = nullptr;
    const store::Secret* secret = nullptr;  // of the keys
  };
  struct Node {
    store::Key chain{};
    u64 used_at = 0;                         // of use_count_
    u32 next = kNoPage;                      // in the chain of its bucket
    u32 older = kNoPage, younger = kNoPage;  // in the order
    u32 before = kNoPage;                    // its parent
    u32 n_children = 0;
    u32 n_held = 0;  // groups that sequences hold
    bool is_listed = false;
    bool is_wanted = false;  // asked for again, or on the disk in part: worth its bytes there
    bool is_ordered = false;
  };
  void init(Carver& carver, const Sizes& sizes);

  const store::Secret& secret() const { return *sizes_.secret; }
  // Returns the key of these tokens behind the page `before`; kNoPage: behind none, under the root.
  store::Key chain_of(const store::Key& root, u32 before, std::span<const u32> token_ids) const;
  // Finds the listed page of this key and these tokens; kNoPage: there is none.
  u32 find(const store::Key& chain, std::span<const u32> token_ids) const;
  // Returns the page's groups, one a cache layer.
  std::span<const GroupRef> groups(u32 page) const {
    return groups_.subspan(u64{page} * sizes_.n_cache_layers, sizes_.n_cache_layers);
  }
  // Notes that a sequence is about to take the found page, behind `before`.
  void note_hit(u32 page, u32 before);

  struct NewPage {
    store::Key chain{};
    u32 before = kNoPage;
    bool is_listed = true;  // where its key is found already, it is not
    std::span<const u32> token_ids{};
  };
  // Makes a page of these groups of the sequence, which are sealed and of no page yet.
  u32 add(const NewPage& page, const Sequence& sequence, u32 at);
  // Makes the page unfindable. It leaves with its last sequence.
  void unlist(u32 page);
  // Frees the groups of an idle page. Its children, found by their own keys, have no parent then.
  void drop(u32 page);

  u32 page_of(const Sequence& sequence, u32 at) const {
    return sizes_.pool->page_of(sequence.group(0, at).idx);
  }
  const Node& node(u32 page) const { return nodes_[page]; }
  std::span<const u32> token_ids(u32 page) const {
    return token_ids_.subspan(u64{page} * sizes_.page_tokens, sizes_.page_tokens);
  }
  // Facts about the record of a group that is part of a page, and the token ids that it carries.
  u32 page_of(u32 group_idx) const { return sizes_.pool->page_of(group_idx); }
  store::Key group_key(u32 group_idx) const {
    return store::layer_key(*sizes_.secret, nodes_[page_of(group_idx)].chain,
                            sizes_.pool->layer_in_page(group_idx));
  }
  bool is_idle(u32 page) const { return nodes_[page].n_held == 0; }
  void set_wanted(u32 page);
  bool has_unwanted() const { return n_unwanted_ > 0; }  // in the order
  u32 oldest() const { return oldest_; }  // of the order: it leaves first. kNoPage: there is none
  u64 n_uses() const { return use_count_; }  // grows whenever the order changes
  u32 n_pages() const { return sizes_.n_pages - free_.n_free(); }
  void check_invariants() const;

  // PageOwner.
  bool on_released(u32 page) override;
  void on_held(u32 page) override;
  void on_reopen(u32 page) override;
  bool free_one() override;

 private:
  void enter_order(u32 page);
  void leave_order(u32 page);
  void leave_tree(u32 page);

  Sizes sizes_{};
  std::span<Node> nodes_{};       // [n_pages]
  std::span<u32> token_ids_{};    // [n_pages, page_tokens]
  std::span<GroupRef> groups_{};  // [n_pages, n_cache_layers]
  std::span<u32> buckets_{};      // a power of two
  FreeList free_{};
  u32 oldest_ = kNoPage, youngest_ = kNoPage;
  u32 n_unwanted_ = 0;
  u64 use_count_ = 0;
};

}  // namespace tarn::kv
