#include "runtime/kv/page_names.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::kv {

void PageNames::init(Carver& carver, u32 n_names, u32 page_tokens, const store::Secret* secret) {
  *this = PageNames();
  secret_ = secret;
  page_tokens_ = page_tokens;
  nodes_ = carver.take<Node>("names", n_names);
  token_ids_ = carver.take<u32>("token ids", u64{n_names} * page_tokens);
  free_.init(carver, n_names);
}

u32 PageNames::make(const store::Key& root, u32 before, std::span<const u32> token_ids) {
  const store::Key& key_before = before == kNoName ? root : nodes_[before].chain;
  return make(store::chain_key(*secret_, key_before, token_ids), token_ids);
}

u32 PageNames::make(const store::Key& chain, std::span<const u32> token_ids) {
  TARN_ASSERT(token_ids.size() == page_tokens_);
  const u32 name = free_.take();  // there are as many as pages of slots
  nodes_[name] = {.chain = chain};
  std::copy(token_ids.begin(), token_ids.end(), &token_ids_[u64{name} * page_tokens_]);
  return name;
}

void PageNames::let_go(u32 name) {
  TARN_ASSERT(nodes_[name].references > 0);
  if (--nodes_[name].references == 0) free_.put(name);
}

}  // namespace tarn::kv
