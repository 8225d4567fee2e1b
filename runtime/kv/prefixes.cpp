#include "runtime/kv/prefixes.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::kv {

bool Prefixes::is_in(u32 page, Where where) const {
  return links_.tiers != nullptr && std::ranges::any_of(index_.groups(page), [&](GroupRef group) {
           return links_.tiers->residency.where(group.idx) == where;
         });
}

// Finds the page, and drops one of which a part is lost.
u32 Prefixes::find_page(const store::Key& chain, std::span<const u32> page_ids) {
  const u32 page = index_.find(chain, page_ids);
  if (page == kNoPage || !is_in(page, Where::lost)) return page;
  index_.is_idle(page) ? index_.drop(page) : index_.unlist(page);
  return kNoPage;
}

void Prefixes::drop_idle(const store::Key& chain, std::span<const u32> page_ids,
                         bool with_what_follows) {
  const u32 page = index_.find(chain, page_ids);
  if (page == kNoPage || !index_.is_idle(page)) return;
  const auto follows = [&](u32 leaf) {
    while (leaf != kNoPage && leaf != page) leaf = index_.node(leaf).before;
    return leaf == page;
  };
  for (u32 leaf = index_.oldest(); with_what_follows && leaf != kNoPage;) {
    const bool goes = leaf != page && follows(leaf);
    if (goes) index_.drop(leaf);
    leaf = goes ? index_.oldest() : index_.node(leaf).younger;
  }
  if (index_.node(page).n_children == 0) index_.drop(page);
}

bool Prefixes::is_here(const Sequence& sequence, u32 at) const {
  const u32 page = index_.page_of(sequence, at);
  return page == kNoPage || !is_away(page);
}

// Finds a record as we would have written it; a read compares the token ids, too.
std::optional<store::RecordRef> Prefixes::record(const store::Key& chain, u32 cache_layer) const {
  if (links_.tiers == nullptr) return std::nullopt;
  const store::Store& store = links_.tiers->store.store();
  const auto ref = store.find(store::layer_key(store.secret(), chain, cache_layer));
  if (!ref) return std::nullopt;
  const store::IndexEntry& entry = store.index().entry(*ref);
  const bool is_ours = entry.kind == store::Kind::group &&
                       entry.payload_bytes == links_.pool->shape().group_bytes() &&
                       entry.n_tokens == links_.pool->shape().page_tokens;
  return is_ours ? ref : std::nullopt;
}

bool Prefixes::has(const store::Key& chain, std::span<const u32> page_ids) const {
  if (index_.find(chain, page_ids) != kNoPage) return true;
  u32 layer = 0;
  while (layer < links_.n_cache_layers && record(chain, layer)) ++layer;
  return layer == links_.n_cache_layers;
}

bool Prefixes::take_page(Sequence& sequence, const store::Key& chain, u32 before,
                         std::span<const u32> page_ids, u32 n_from_disk_max, Reused* reused) {
  const u32 page_tokens = links_.pool->shape().page_tokens, at = sequence.n_slots() / page_tokens;
  const u32 found = find_page(chain, page_ids);
  if (found == kNoPage && !record(chain, 0)) return false;
  const bool from_disk = found == kNoPage || is_away(found);
  if (from_disk && u64{reused->n_from_disk} + page_tokens > n_from_disk_max) return false;
  const bool is_cut = sequence.truncate(at * page_tokens);
  TARN_ASSERT(is_cut);  // between two pages
  if (found == kNoPage) {
    const auto find = [&](u32 layer) { return record(chain, layer); };
    if (!sequence.reserve(page_tokens) || !adopt_records(sequence, find)) return false;
    index_.set_wanted(
        index_.add({.chain = chain, .before = before, .token_ids = page_ids}, sequence, at));
    reused->n_from_disk += page_tokens;
    return true;
  }
  (from_disk ? reused->n_from_disk : reused->n_from_memory) += page_tokens;
  index_.note_hit(found, before);
  sequence.adopt(index_.groups(found));
  return true;
}

Reused Prefixes::take(Sequence& sequence, const store::Key& root, std::span<const u32> ids,
                      u32 n_from_disk_max) {
  Reused reused{};
  if (!links_.reuses) return reused;
  const u32 page_tokens = links_.pool->shape().page_tokens,
            begin = sequence.n_slots() / page_tokens;
  u32 before = begin == 0 ? kNoPage : index_.page_of(sequence, begin - 1);
  if (begin > 0 && before == kNoPage) return reused;  // of no tokens that we know
  for (u32 at = begin; u64{at + 1} * page_tokens <= ids.size(); ++at) {
    const auto page_ids = ids.subspan(u64{at} * page_tokens, page_tokens);
    const store::Key chain = index_.chain_of(root, before, page_ids);
    if (!take_page(sequence, chain, before, page_ids, n_from_disk_max, &reused)) break;
    before = index_.page_of(sequence, at);
  }
  return reused;
}

Reused Prefixes::cached(const store::Key& root, std::span<const u32> ids) const {
  const u32 page_tokens = links_.pool->shape().page_tokens;
  Reused there{};
  if (!links_.reuses) return there;
  store::Key chain = root;
  for (u64 n = 0; n + page_tokens <= ids.size(); n += page_tokens) {
    const auto page_ids = ids.subspan(n, page_tokens);
    chain = store::chain_key(index_.secret(), chain, page_ids);
    if (!has(chain, page_ids)) break;
    const u32 page = index_.find(chain, page_ids);
    const bool from_disk = page == kNoPage || is_away(page);
    (from_disk ? there.n_from_disk : there.n_from_memory) += page_tokens;
  }
  return there;
}

void Prefixes::evict(Sequence& sequence) {
  const u32 n_pages = sequence.n_slots() / links_.pool->shape().page_tokens;
  for (u32 at = 0; links_.tiers != nullptr && at < n_pages; ++at) {
    const u32 page = index_.page_of(sequence, at);
    if (page != kNoPage && index_.node(page).is_listed) index_.set_wanted(page);
  }
  sequence.clear();
}

void Prefixes::list(Sequence& sequence, const store::Key& root, std::span<const u32> ids, u32 begin,
                    u32 end) {
  const u32 page_tokens = links_.pool->shape().page_tokens;
  for (u32 at = begin; at < end; ++at) {
    const u32 before = at == 0 ? kNoPage : index_.page_of(sequence, at - 1);
    if (at > 0 && before == kNoPage) return;  // of no tokens that we know
    if (index_.page_of(sequence, at) != kNoPage) continue;
    const auto page_ids = ids.subspan(u64{at} * page_tokens, page_tokens);
    const store::Key chain = index_.chain_of(root, before, page_ids);
    u32 there = links_.reuses ? find_page(chain, page_ids) : kNoPage;
    if (there != kNoPage && is_away(there) && index_.is_idle(there)) {
      index_.drop(there);  // it need not be read any more
      there = kNoPage;
    }
    if (there == kNoPage) {
      index_.add({.chain = chain, .before = before, .token_ids = page_ids}, sequence, at);
    } else {
      index_.note_hit(there, before);
      sequence.replace(at, index_.groups(there));
    }
  }
}

// Writes idle pages until a quarter of the groups could be taken at once. A parent leaves behind
// its last child.
void Prefixes::save_idle() {
  const u32 n_wanted = links_.pool->groups_max() / 4;
  u32 n_groups = links_.pool->groups_free() - links_.pool->groups_idle();
  const u64 looked_at = index_.n_uses() << 24 ^ n_groups;
  if (links_.tiers == nullptr || n_groups >= n_wanted || looked_at == looked_at_) return;
  Mover& mover = links_.tiers->mover;
  const Residency& residency = links_.tiers->residency;
  for (u32 leaf = index_.oldest(); leaf != kNoPage; leaf = index_.node(leaf).younger) {
    u32 page = leaf;
    for (; page != kNoPage && n_groups < n_wanted; page = index_.node(page).before) {
      if (!index_.is_idle(page) || index_.node(page).n_children > 1) break;
      n_groups += links_.n_cache_layers;
      for (const GroupRef group : index_.groups(page)) {
        const bool is_dirty = residency.where(group.idx) == Where::memory;
        if (!is_dirty || !index_.node(page).is_wanted) continue;
        if (mover.save(group.idx) == Saved::refused) return;
        if (residency.where(group.idx) == Where::memory) return;  // no place for more now
      }
    }
  }
  looked_at_ = looked_at;
}

}  // namespace tarn::kv
