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
  init_pages(&secret_);
}

void KvCache::init_pages(const store::Secret* secret) {
  Carver carver(tables_.pages);
  prefixes_.index().init(carver, {.n_pages = sizes_.n_pages,
                                  .n_cache_layers = sizes_.n_cache_layers,
                                  .page_tokens = sizes_.shape.page_tokens,
                                  .keeps_idle = sizes_.reuses,
                                  .pool = &pool_,
                                  .secret = secret});
  pool_.belong_to(&prefixes_.index());
  prefixes_.init({.pool = &pool_,
                  .tiers = sizes_.n_frames > 0 ? &tiers_ : nullptr,
                  .n_cache_layers = sizes_.n_cache_layers,
                  .reuses = sizes_.reuses});
}

Result<void> KvCache::open_tiers(const TierArgs& args) {
  TARN_ASSERT(!has_tiers_);
  pool_.lie_in(&tiers_.residency);
  store::Store& store = tiers_.store.store();
  std::array<u8, 8> random{};
  TARN_CHECK(fill_random(random));
  tiers_.nonce = std::bit_cast<u64>(random);
  tiers_.guest = args.guest;
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
  init_pages(&store.secret());
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
  has_tiers_ = true;
  return {};
}

void Tiers::on_event(void* self, const store::Event& event) {
  auto& tiers = *static_cast<Tiers*>(self);
  if (event.tag >= kExtentTag) return tiers.extents.on_event(event);
  tiers.guest->take(event);
}

// Erases extents: in a store that outlives us no start would find them.
void KvCache::close() {
  const store::Store& store = tiers_.store.store();
  if (has_tiers_) {
    tiers_.mover.stop();
    for (u32 head = 0; tiers_.outlives_us && head < tiers_.extents.shape().n_heads; ++head) {
      tiers_.extents.forget(head);
    }
    while (!(tiers_.mover.idle() && store.idle()) && !store.is_stuck()) tiers_.mover.pump(kWaitNs);
  }
  tiers_.store.close();
  tiers_.outlives_us = false;
  tiers_.guest = nullptr;
  has_tiers_ = false;
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
  const bool holds = has_tiers_ && cuts_page;
  Result<void> prepared{};
  if (holds) {
    TARN_CHECK(tiers_.mover.hold(sequence, n / page_tokens));
    prepared = tiers_.mover.make_room(sizes_.n_cache_layers);
  }
  const bool is_cut = prepared && sequence.truncate(n);
  if (holds) tiers_.mover.drop_hold();
  TARN_CHECK(prepared);
  if (is_cut) return {};
  return fail({.status = Status::would_block,
               .reason = Reason::busy_kv,
               .hint = "no KV group is free to copy the shared tail: end another session"});
}

Result<void> KvCache::fork(const Sequence& source, Sequence& copy, u32 n_more) {
  if (has_tiers_) TARN_CHECK(tiers_.mover.make_room(sizes_.n_cache_layers));
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

Result<void> KvCache::reserve_frames(const Sequence& sequence, u32 n) {
  if (!has_tiers_) return {};
  return tiers_.mover.make_writable(sequence, n);
}

void KvCache::plan_step(const step::Batch& batch, const Sequence* next) {
  if (!has_tiers_) return;
  UsePlan& uses = tiers_.mover.uses();
  uses.begin();
  for (const step::Run& run : batch.runs) {
    if (run.part == step::RunPart::check) continue;  // of other layers than the others
    const u32 n_slots = batch.visible[run.row_begin + run.n_rows - 1];
    const u32 n_groups = static_cast<u32>(ceil_div(n_slots, pool_.shape().page_tokens));
    uses.add({run.sequence, n_groups, run.offloaded_begin, run.offloaded_end});
  }
  if (next != nullptr) uses.add({next, next->n_groups()});
  uses.end();
}

void KvCache::plan_later(const Sequence& sequence) {
  if (!has_tiers_) return;
  tiers_.mover.uses().add_later({&sequence, sequence.n_slots() / pool_.shape().page_tokens});
}

Result<u32> KvCache::pin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
  if (!has_tiers_) return end - begin;
  return tiers_.mover.pin(sequence, cache_layer, begin, end);
}

void KvCache::unpin(const Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
  if (has_tiers_) tiers_.mover.unpin(sequence, cache_layer, begin, end);
}

void KvCache::pump(u64 timeout_ns) {
  if (!has_tiers_) return;
  tiers_.mover.pump(timeout_ns);
  if (tiers_.guest != nullptr) tiers_.guest->go_on();
}

bool KvCache::is_moving() const {
  if (!has_tiers_) return false;
  return !tiers_.mover.idle() || (tiers_.guest != nullptr && tiers_.guest->is_busy());
}

KvStats KvCache::stats() const {
  return {tiers_.mover.stats(), tiers_.extents.stats(), tiers_.store.store().stats()};
}

}  // namespace tarn::kv
