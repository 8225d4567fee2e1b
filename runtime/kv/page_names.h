// What sealed groups are called in the store, so that a record written by one session, or before a
// restart, is the record of every group with the same tokens behind the same tokens. All groups of
// one page of slots, one a cache layer, have one name: the chain key up to the page's last token,
// and the page's token ids, which the record carries and a hit compares.
//
//   names     counted: each group that has it holds one; the last one frees it
//   thread    the engine's
//   off       without init() nothing has a name
#pragma once

#include <span>

#include "runtime/kv/free_list.h"
#include "runtime/store/key.h"

namespace tarn::kv {

inline constexpr u32 kNoName = ~u32{0};

class PageNames {
 public:
  void init(Carver& carver, u32 n_names, u32 page_tokens, const store::Secret* secret);
  bool is_on() const { return !nodes_.empty(); }

  // The name of a page behind the one called `before` (kNoName: behind none, under the root). It
  // has no reference yet, and must get n_cache_layers of them at once.
  u32 make(const store::Key& root, u32 before, std::span<const u32> token_ids);
  // Likewise under this key: of a page whose KV does not follow from its tokens, one of its own.
  u32 make(const store::Key& chain, std::span<const u32> token_ids);
  void hold(u32 name) { ++nodes_[name].references; }
  void let_go(u32 name);

  const store::Key& chain(u32 name) const { return nodes_[name].chain; }
  store::Key key(u32 name, u32 cache_layer) const {
    return store::layer_key(*secret_, nodes_[name].chain, cache_layer);
  }
  std::span<const u32> token_ids(u32 name) const {
    return token_ids_.subspan(u64{name} * page_tokens_, page_tokens_);
  }
  u32 n_free() const { return free_.n_free(); }

 private:
  struct Node {
    store::Key chain{};
    u32 references = 0;
  };

  const store::Secret* secret_ = nullptr;
  u32 page_tokens_ = 0;
  std::span<Node> nodes_{};
  std::span<u32> token_ids_{};  // [n_names, page_tokens]
  FreeList free_{};
};

}  // namespace tarn::kv
