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

void PageKeys::init(kv::Tiers* tiers, const KvIdentity& identity) {
  tiers_ = tiers;
  n_cache_layers_ = identity.n_cache_layers;
  root_ = identity_key(secret(), identity);
  n_private_ = 0;
}

u32 PageKeys::name_of(const kv::Sequence& sequence, u32 page) const {
  return tiers_->residency.entry(sequence.group(0, page).idx).name;
}

void PageKeys::set_name(const kv::Sequence& sequence, u32 page, u32 name) {
  for (u32 layer = 0; layer < n_cache_layers_; ++layer) {
    tiers_->residency.set_name(sequence.group(layer, page).idx, name, layer);
  }
}

void PageKeys::name_pages(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin,
                          u32 end) {
  for (u32 page = begin; page < end; ++page) {
    const u32 before = page == 0 ? kv::kNoName : name_of(sequence, page - 1);
    if (page > 0 && before == kv::kNoName) return;  // of no tokens that we know
    const auto page_ids = ids.subspan(u64{page} * page_tokens(), page_tokens());
    set_name(sequence, page, tiers_->names.make(root_, before, page_ids));
  }
}

void PageKeys::name_private(const kv::Sequence& sequence, std::span<const u32> ids, u32 begin,
                            u32 end, std::span<const store::Key> keys) {
  for (u32 page = begin; page < end; ++page) {
    const store::Key key = keys.empty() ? new_private() : keys[page - begin];
    const auto page_ids = ids.subspan(u64{page} * page_tokens(), page_tokens());
    set_name(sequence, page, tiers_->names.make(key, page_ids));
  }
}

u32 PageKeys::n_named_pages(const kv::Sequence& sequence) const {
  u32 page = 0;
  while (page < sequence.n_slots() / page_tokens() && name_of(sequence, page) != kv::kNoName) {
    ++page;
  }
  return page;
}

const store::Key& PageKeys::page(const kv::Sequence& sequence, u32 page) const {
  return tiers_->names.chain(name_of(sequence, page));
}

store::Key PageKeys::tail(const kv::Sequence& sequence, u32 n_pages,
                          std::span<const u32> ids) const {
  return store::chain_key(secret(), n_pages == 0 ? root_ : page(sequence, n_pages - 1), ids);
}

store::Key PageKeys::new_private() {
  return store::private_key(secret(), {tiers_->nonce, n_private_++, 0, 0});
}

}  // namespace tarn::reuse
