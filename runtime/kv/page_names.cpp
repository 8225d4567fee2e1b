#include "runtime/kv/page_names.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "platform/base/checked.h"

namespace tarn::kv {

u64 PageNames::bookkeeping_bytes(u32 n_names, u32 page_tokens) {
  return n_names * sizeof(Node) + align_up(u64{n_names} * page_tokens * sizeof(u32), sizeof(u64));
}

void PageNames::init(u32 n_names, u32 page_tokens, const store::Secret* secret,
                     std::span<std::byte> bookkeeping) {
  TARN_ASSERT(n_names > 0 && n_names < kNoName && secret != nullptr);
  Bump bump(bookkeeping);
  const auto nodes = bump.alloc<Node>(n_names);
  const auto token_ids = bump.alloc<u32>(u64{n_names} * page_tokens);
  TARN_ASSERT(nodes && token_ids);
  secret_ = secret;
  page_tokens_ = page_tokens;
  nodes_ = *nodes;
  token_ids_ = *token_ids;
  free_head_ = kNoName;
  n_free_ = n_names;
  for (u32 name = n_names; name-- > 0;) {
    nodes_[name] = {.next_free = free_head_};
    free_head_ = name;
  }
}

u32 PageNames::make(const store::Key& root, u32 before, std::span<const u32> token_ids) {
  const store::Key& key_before = before == kNoName ? root : nodes_[before].chain;
  return take(store::chain_key(*secret_, key_before, token_ids), token_ids);
}

u32 PageNames::make_private(const store::Key& key, std::span<const u32> token_ids) {
  return take(key, token_ids);
}

u32 PageNames::take(const store::Key& chain, std::span<const u32> token_ids) {
  TARN_ASSERT(token_ids.size() == page_tokens_);
  TARN_ASSERT(free_head_ != kNoName);  // there are as many as pages of slots
  const u32 name = free_head_;
  Node& node = nodes_[name];
  free_head_ = node.next_free;
  --n_free_;
  node = {.chain = chain};
  std::copy(token_ids.begin(), token_ids.end(), &token_ids_[u64{name} * page_tokens_]);
  return name;
}

void PageNames::let_go(u32 name) {
  Node& node = nodes_[name];
  TARN_ASSERT(node.references > 0);
  if (--node.references > 0) return;
  node.next_free = free_head_;
  free_head_ = name;
  ++n_free_;
}

}  // namespace tarn::kv
