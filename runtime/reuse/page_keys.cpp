#include "runtime/reuse/page_keys.h"

#include <algorithm>

namespace tarn::reuse {

void PrivateTails::put(const store::Key& key, u32 of_slots) {
  if (n == keys.size()) {
    std::copy(keys.begin() + 1, keys.end(), keys.begin());
    --n;
  }
  keys[n++] = key;
  n_slots = of_slots;
}

void PageKeys::name_private(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin,
                            u32 end, std::span<const store::Key> keys) {
  for (u32 page = begin; page < end; ++page) {
    const store::Key key = keys.empty() ? new_private() : keys[page - begin];
    const auto page_ids = ids.subspan(u64{page} * page_tokens(), page_tokens());
    kv_->prefixes().index().add({.chain = key, .is_listed = false, .token_ids = page_ids}, sequence,
                                page);
  }
}

u32 PageKeys::n_named_pages(const kv::Sequence& sequence) const {
  u32 page = 0;
  while (page < sequence.n_slots() / page_tokens() &&
         pages().page_of(sequence, page) != kv::kNoPage) {
    ++page;
  }
  return page;
}

store::Key PageKeys::new_private() {
  const kv::Tiers& tiers = kv_->tiers();
  return store::private_key(tiers.store.store().secret(), {tiers.nonce, n_private_++, 0, 0});
}

}  // namespace tarn::reuse
