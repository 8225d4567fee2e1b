#include "runtime/kv/prefix_index.h"

#include <algorithm>
#include <bit>

#include "platform/base/assert.h"

namespace tarn::kv {

void PrefixIndex::init(Carver& carver, const Sizes& sizes) {
  *this = PrefixIndex();
  sizes_ = sizes;
  nodes_ = carver.take<Node>("pages", sizes.n_pages);
  token_ids_ = carver.take<u32>("token ids", u64{sizes.n_pages} * sizes.page_tokens);
  groups_ = carver.take<GroupRef>("page groups", u64{sizes.n_pages} * sizes.n_cache_layers);
  buckets_ = carver.take<u32>("buckets", std::bit_ceil(u64{sizes.n_pages}));
  free_.init(carver, sizes.n_pages);
  std::ranges::fill(nodes_, Node{});
  std::ranges::fill(buckets_, kNoPage);
}

store::Key PrefixIndex::chain_of(const store::Key& root, u32 before,
                                 std::span<const u32> token_ids) const {
  return store::chain_key(*sizes_.secret, before == kNoPage ? root : nodes_[before].chain,
                          token_ids);
}

u32 PrefixIndex::find(const store::Key& chain, std::span<const u32> token_ids) const {
  u32 page = buckets_[chain.low & (buckets_.size() - 1)];
  while (page != kNoPage && !(nodes_[page].chain == chain)) page = nodes_[page].next;
  if (page == kNoPage || !std::ranges::equal(this->token_ids(page), token_ids)) return kNoPage;
  return page;
}

void PrefixIndex::set_wanted(u32 page) {
  Node& node = nodes_[page];
  n_unwanted_ -= node.is_ordered && !node.is_wanted;
  node.is_wanted = true;
}

// Links a page again whose parent had left, as long as no sequence holds it without one.
void PrefixIndex::note_hit(u32 page, u32 before) {
  Node& node = nodes_[page];
  set_wanted(page);
  node.used_at = ++use_count_;
  if (node.before != kNoPage || before == kNoPage || node.n_held > 0) return;
  node.before = before;
  if (nodes_[before].n_children++ == 0) leave_order(before);
}

u32 PrefixIndex::add(const NewPage& page, const Sequence& sequence, u32 at) {
  TARN_ASSERT(page.token_ids.size() == sizes_.page_tokens);
  const u32 idx = free_.take();
  Node& node = nodes_[idx];
  node = {.chain = page.chain,
          .used_at = ++use_count_,
          .before = page.before,
          .n_held = sizes_.n_cache_layers,
          .is_listed = page.is_listed && find(page.chain, page.token_ids) == kNoPage};
  std::ranges::copy(page.token_ids, &token_ids_[u64{idx} * sizes_.page_tokens]);
  for (u32 layer = 0; layer < sizes_.n_cache_layers; ++layer) {
    const GroupRef group = sequence.group(layer, at);
    groups_[u64{idx} * sizes_.n_cache_layers + layer] = group;
    sizes_.pool->set_page(group, idx, layer);
  }
  if (page.before != kNoPage) ++nodes_[page.before].n_children;
  if (!node.is_listed) return idx;
  u32& bucket = buckets_[node.chain.low & (buckets_.size() - 1)];
  node.next = bucket;
  bucket = idx;
  return idx;
}

void PrefixIndex::unlist(u32 page) {
  Node& node = nodes_[page];
  if (!node.is_listed) return;
  u32* link = &buckets_[node.chain.low & (buckets_.size() - 1)];
  while (*link != page) link = &nodes_[*link].next;
  *link = node.next;
  node.is_listed = false;
}

// Takes the page out of the tree; its node is free then.
void PrefixIndex::leave_tree(u32 page) {
  unlist(page);
  leave_order(page);
  if (const u32 before = nodes_[page].before; before != kNoPage) {
    Node& parent = nodes_[before];
    if (--parent.n_children == 0 && parent.n_held == 0) enter_order(before);
  }
  for (u32 child = 0; nodes_[page].n_children > 0; ++child) {
    if (nodes_[child].before != page) continue;
    nodes_[child].before = kNoPage;
    --nodes_[page].n_children;
  }
  nodes_[page] = {};
  free_.put(page);
}

// Takes the page out of the tree; its groups go on without it.
void PrefixIndex::on_reopen(u32 page) {
  TARN_ASSERT(!is_idle(page));
  for (const GroupRef group : groups(page)) sizes_.pool->set_page(group, kNoPage, 0);
  leave_tree(page);
}

void PrefixIndex::drop(u32 page) {
  TARN_ASSERT(is_idle(page) && nodes_[page].is_listed);
  for (const GroupRef group : groups(page)) sizes_.pool->free_idle(group);
  leave_tree(page);
}

bool PrefixIndex::on_released(u32 page) {
  Node& node = nodes_[page];
  TARN_ASSERT(node.n_held > 0);
  const bool stays = node.is_listed && sizes_.keeps_idle;
  if (--node.n_held > 0) return stays;
  if (!stays) {
    leave_tree(page);
    return false;
  }
  node.used_at = ++use_count_;
  if (node.n_children == 0) enter_order(page);
  return true;
}

void PrefixIndex::on_held(u32 page) {
  Node& node = nodes_[page];
  if (node.n_held++ > 0) return;
  leave_order(page);
}

bool PrefixIndex::free_one() {
  if (oldest_ == kNoPage) return false;
  drop(oldest_);
  return true;
}

// Behind those that were used before it. What enters has just been used, or its child has left,
// which in most cases was the oldest: the place is near one of the ends.
void PrefixIndex::enter_order(u32 page) {
  Node& node = nodes_[page];
  TARN_ASSERT(!node.is_ordered);
  u32 younger = kNoPage;
  if (youngest_ != kNoPage && nodes_[youngest_].used_at > node.used_at) {
    younger = oldest_;
    while (nodes_[younger].used_at < node.used_at) younger = nodes_[younger].younger;
  }
  node.younger = younger;
  node.older = younger == kNoPage ? youngest_ : nodes_[younger].older;
  (node.older == kNoPage ? oldest_ : nodes_[node.older].younger) = page;
  (younger == kNoPage ? youngest_ : nodes_[younger].older) = page;
  node.is_ordered = true;
  n_unwanted_ += !node.is_wanted;
  ++use_count_;
}

void PrefixIndex::leave_order(u32 page) {
  Node& node = nodes_[page];
  if (!node.is_ordered) return;
  (node.older == kNoPage ? oldest_ : nodes_[node.older].younger) = node.younger;
  (node.younger == kNoPage ? youngest_ : nodes_[node.younger].older) = node.older;
  node.older = node.younger = kNoPage;
  node.is_ordered = false;
  n_unwanted_ -= !node.is_wanted;
}

void PrefixIndex::check_invariants() const {
  u32 n_ordered = 0, n_in_order = 0, n_unwanted = 0;
  for (u32 page = 0; page < nodes_.size(); ++page) {
    const Node& node = nodes_[page];
    const bool is_free = node.n_held == 0 && !node.is_listed;
    TARN_ASSERT(node.n_held == 0 || node.n_held == sizes_.n_cache_layers);
    n_ordered += node.is_ordered;
    n_unwanted += node.is_ordered && !node.is_wanted;
    TARN_ASSERT(node.is_ordered == (node.n_held == 0 && node.is_listed && node.n_children == 0));
    if (is_free) continue;
    const u32 before = node.before;
    TARN_ASSERT(before == kNoPage || nodes_[before].n_children > 0);
    TARN_ASSERT(before == kNoPage || node.n_held == 0 || nodes_[before].n_held > 0);
    const auto children = std::ranges::count(nodes_, page, &Node::before);
    TARN_ASSERT(children == node.n_children);
    for (const GroupRef group : groups(page)) TARN_ASSERT(page_of(group.idx) == page);
  }
  for (u32 page = oldest_; page != kNoPage; page = nodes_[page].younger) {
    ++n_in_order;
    const u32 younger = nodes_[page].younger;
    TARN_ASSERT(younger == kNoPage || nodes_[page].used_at <= nodes_[younger].used_at);
  }
  TARN_ASSERT(n_ordered == n_in_order && n_unwanted == n_unwanted_);
}

}  // namespace tarn::kv
