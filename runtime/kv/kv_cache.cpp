#include "runtime/kv/kv_cache.h"

#include <algorithm>
#include <bit>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "platform/io/private_folder.h"

namespace tarn::kv {

void KvCache::init(const KvArgs& args) {
  sizes_ = args.sizes;
  tables_ = args.tables;
  Carver carver(tables_.pool);
  pool_.init(carver, sizes_.shape, sizes_.groups_max);
  secret_ = store::make_secret(args.entropy);
  init_pages(&secret_, nullptr);
  tiers_.extents.init({}, {});
}

void KvCache::init_pages(const store::Secret* secret, Tiers* tiers) {
  Carver carver(tables_.pages);
  prefixes_.index().init(carver, {.n_pages = sizes_.n_pages,
                                  .n_cache_layers = sizes_.n_cache_layers,
                                  .page_tokens = sizes_.shape.page_tokens,
                                  .keeps_idle = sizes_.reuses,
                                  .pool = &pool_,
                                  .secret = secret});
  pool_.belong_to(&prefixes_.index());
  prefixes_.init({.pool = &pool_,
                  .tiers = tiers,
                  .n_cache_layers = sizes_.n_cache_layers,
                  .reuses = sizes_.reuses});
}

Result<void> KvCache::open_tiers(const TierArgs& args) {
  TARN_ASSERT(moves_ == &no_moves_);
  pool_.lie_in(&tiers_.residency);
  store::Store& store = tiers_.store.store();
  std::array<u8, 8> random{};
  TARN_CHECK(fill_random(random));
  tiers_.nonce = std::bit_cast<u64>(random);
  tiers_.guest = args.guest;
  tiers_.n_cache_layers = sizes_.n_cache_layers;
  tiers_.extents.init({.shape = args.extents,
                       .store = &store,
                       .mover = &tiers_.mover,
                       .clock = args.store.clock,
                       .daily_write_bytes = args.store.limits.write_bytes_per_day,
                       .nonce = tiers_.nonce},
                      args.extents_memory);
  const std::span<std::byte> buffers[] = {args.frames, tiers_.extents.landing()};
  TierStoreArgs with_buffers = args.store;
  with_buffers.buffers = std::span(buffers).first(tiers_.extents.is_on() ? 2 : 1);
  if (const Result<void> opened = tiers_.store.open(with_buffers); !opened) {
    // A step finds frames for its rows, and for one pin set beside them.
    const bool fits = sizes_.n_frames >= sizes_.groups_max + args.pin_set_groups;
    if (!fits || !store::is_disk_failure(opened.error())) return opened;
    TARN_CHECK(tiers_.store.stay_off(opened.error()));
  }
  tiers_.outlives_us = args.store.limits.keeps;
  init_pages(&store.secret(), &tiers_);
  Carver carver(tables_.residency);
  tiers_.residency.init(carver, {.shape = sizes_.shape,
                                 .n_groups = sizes_.groups_max,
                                 .n_frames = sizes_.n_frames,
                                 .frames = args.frames,
                                 .store = &store});
  tiers_.mover.init({.residency = &tiers_.residency,
                     .store = &store,
                     .clock = args.store.clock,
                     .n_cache_layers = sizes_.n_cache_layers,
                     .pin_set_groups = args.pin_set_groups,
                     .loads_max = args.moves_max,
                     .spills_max = args.moves_max,
                     .nonce = tiers_.nonce,
                     .pages = &prefixes_.index(),
                     .on_other = &Tiers::on_event,
                     .other_context = &tiers_,
                     .host = args.host},
                    tables_.mover);
  moves_ = &tiers_;
  return {};
}

void KvCache::close() {
  moves_->stop();
  moves_ = &no_moves_;
  tiers_.store.close();
  tiers_.outlives_us = false;
  tiers_.guest = nullptr;
}

bool KvCache::reserve_slots(Sequence& sequence, u32 n_slots) {
  if (sequence.n_reserved() >= n_slots) return true;
  sequence.abandon();
  return sequence.reserve(n_slots - sequence.n_slots());
}

// ---- Sequences ----------------------------------------------------------------------------------

// Brings what the cut reopens or copies into memory, and holds it there meanwhile.
Result<void> KvCache::truncate(Sequence& sequence, u32 n) {
  const u32 page_tokens = pool_.shape().page_tokens;
  const bool cuts_page = n % page_tokens != 0 && n != sequence.n_slots();
  if (cuts_page) TARN_CHECK(moves_->hold(sequence, n / page_tokens));
  const bool is_cut = sequence.truncate(n);
  if (cuts_page) moves_->drop_hold();
  if (is_cut) return {};
  return fail({.status = Status::would_block,
               .reason = Reason::busy_kv,
               .hint = "no KV group is free to copy the shared tail: end another session"});
}

Result<void> KvCache::fork(const Sequence& source, Sequence& copy, u32 n_more) {
  TARN_CHECK(moves_->make_room());
  if (copy.fork_from(source) && copy.reserve(n_more)) return {};
  return fail({.status = Status::would_block,
               .reason = Reason::busy_kv,
               .hint = "no KV group is free to copy the tail: end another session"});
}

void KvCache::cut_lost(Sequence& sequence, bool keeps_whole_pages) {
  tiers_.mover.settle();
  const auto is_lost = [&](u32 page) {
    for (u32 layer = 0; layer < sizes_.n_cache_layers; ++layer) {
      if (tiers_.residency.where(sequence.group(layer, page).idx) == Where::lost) return true;
    }
    return false;
  };
  u32 n_pages = 0;
  while (n_pages < sequence.n_groups() && !is_lost(n_pages)) ++n_pages;
  for (u32 at = n_pages; at < sequence.n_groups(); ++at) {
    const u32 page = prefixes_.index().page_of(sequence, at);
    if (page != kNoPage && is_lost(at)) prefixes_.index().unlist(page);
  }
  const bool keeps = keeps_whole_pages && n_pages < sequence.n_groups();
  const bool is_cut = sequence.truncate(keeps ? n_pages * pool_.shape().page_tokens : 0);
  TARN_ASSERT(is_cut);  // between two pages
}

KvStats KvCache::stats() const {
  return {tiers_.mover.stats(), tiers_.extents.stats(), tiers_.store.store().stats()};
}

}  // namespace tarn::kv
