#include "runtime/kv/extents.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "platform/base/checked.h"

namespace tarn::kv {
namespace {

using store::kSectorBytes;

// Of the parts' tags, and behind them the puts'.
constexpr u64 kTagsOfKind = 256;
static_assert(kExtentPartsMax <= kTagsOfKind);

}  // namespace

void Extents::init(const Args& args, std::span<std::byte> region) {
  *this = Extents();
  if (!args.shape.is_on()) return;
  TARN_ASSERT(args.shape.n_pieces <= kExtentPiecesMax && region.size() >= args.shape.bytes());
  TARN_ASSERT(args.shape.slot_bytes <= kExtentPieceBytes - 2 * kSectorBytes);
  TARN_ASSERT(args.shape.n_orders > 0 && args.shape.n_orders <= kExtentOrdersMax);
  args_ = args;
  Bump bump(region);
  const auto landing = bump.alloc_bytes(args.shape.n_pieces * kExtentPieceBytes, kSectorBytes);
  TARN_ASSERT(landing.has_value());
  heads_.init(args.shape, bump);
  reads_.init({.shape = args.shape,
               .heads = &heads_,
               .store = args.store,
               .mover = args.mover,
               .clock = args.clock,
               .stats = &stats_,
               .first_tag = kTag,
               .landing = *landing});
  writes_.init({.store = args.store,
                .mover = args.mover,
                .stats = &stats_,
                .daily_write_bytes = args.daily_write_bytes,
                .first_tag = kTag + kTagsOfKind});
  codebooks_.init(args.store, &reads_, &writes_, &stats_);
}

// ---- Building -----------------------------------------------------------------------------------

store::Key Extents::draw_key() {
  return store::private_key(args_.store->secret(), {nonce_, serial_++, 1, 0});
}

// A record's place in its order, since how many an order may have is of this plan.
store::Key Extents::record_key(const ExtentName& name, u32 record) const {
  const u64 order = record / args_.shape.records_max, place = record % args_.shape.records_max;
  return store::part_key(args_.store->secret(), name.owner,
                         {name.version, u64{name.head} << 32 | (order + 1), place});
}

void Extents::forget_orders(u32 head, u32 begin) {
  for (store::RecordRef& ref : heads_.records(head).subspan(u64{begin} * args_.shape.records_max)) {
    if (ref.frame_idx != store::kNoFrame) writes_.erase(ref);
    ref = {};
  }
}

void Extents::forget(u32 head) {
  forget_orders(head, 0);
  heads_[head] = {};
}

void Extents::leave(u32 head) {
  for (store::RecordRef& ref : heads_.records(head)) {
    if (ref.frame_idx != store::kNoFrame) args_.store->unpin(ref);
    ref = {};
  }
  heads_[head] = {};
}

void Extents::forget_all() {
  for (u32 head = 0; head < heads_.size(); ++head) forget(head);
}

void Extents::begin(u32 head, u32 slot_begin, u32 slot_end, const ExtentName& name) {
  TARN_ASSERT(slot_end - slot_begin <= u64{args_.shape.records_max} * args_.shape.record_tokens);
  forget(head);
  heads_[head].name = name;
  heads_[head].slot_begin = slot_begin;
  heads_[head].slot_end = slot_end;
}

void Extents::put(u32 head, u32 place, std::span<std::byte> tokens, u32 n_tokens) {
  ExtentHead& h = heads_[head];
  const u32 record = place / args_.shape.record_tokens;
  const u32 order = record / args_.shape.records_max;
  TARN_ASSERT(h.index == nullptr && place % args_.shape.record_tokens == 0);
  TARN_ASSERT(order < args_.shape.n_orders);
  TARN_ASSERT(n_tokens > 0 && n_tokens <= args_.shape.record_tokens);
  const u64 n_bytes = u64{n_tokens} * args_.shape.slot_bytes;
  const u64 n_padded = align_up(n_bytes, kSectorBytes);
  TARN_ASSERT(tokens.size() >= n_padded);
  std::fill(tokens.begin() + static_cast<i64>(n_bytes), tokens.begin() + static_cast<i64>(n_padded),
            std::byte{0});
  if (!writes_.affords(n_padded, order)) h.is_broken[order] = true;
  if (h.is_broken[order]) return;
  const bool is_begun = writes_.put({.kind = store::Kind::extent,
                                     .key = record_key(h.name, record),
                                     .payload = tokens.first(n_padded),
                                     .payload_bytes = n_bytes},
                                    {.head = head, .record = record});
  if (!is_begun) h.is_broken[order] = true;
}

void Extents::finish(u32 head, const void* index) {
  TARN_ASSERT(writes_.is_settled());
  ExtentHead& h = heads_[head];
  for (; h.n_orders < args_.shape.n_orders; ++h.n_orders) {
    const u32 begin = h.n_orders * args_.shape.records_max;
    if (h.is_broken[h.n_orders]) break;
    h.is_broken[h.n_orders] =
        !reads_.load_record_heads(head, begin, begin + args_.shape.records_max);
    if (h.is_broken[h.n_orders]) break;
  }
  if (h.n_orders == 0) return forget(head);
  forget_orders(head, h.n_orders);
  h.index = index;
}

// A record as we write them: whatever else lies under such a key is somebody else's making.
std::optional<store::RecordRef> Extents::find(const store::Key& key) const {
  const auto found = args_.store->find(key);
  if (!found || args_.store->head_bytes(*found) != kSectorBytes) return std::nullopt;
  if (args_.store->index().entry(*found).kind != store::Kind::extent) return std::nullopt;
  return found;
}

void Extents::adopt(u32 head, u32 slot_begin, u32 slot_end, u32 n_orders, const ExtentName& name,
                    const void* index) {
  const u32 record_tokens = args_.shape.record_tokens, n_tokens = slot_end - slot_begin;
  begin(head, slot_begin, slot_end, name);
  for (u32 order = 0; order < args_.shape.n_orders; ++order) {
    const u32 first = order * args_.shape.records_max;
    heads_[head].is_broken[order] = order >= n_orders;
    for (u32 i = 0; i < ceil_div(n_tokens, record_tokens); ++i) {
      const u64 n_bytes =
          u64{std::min(record_tokens, n_tokens - i * record_tokens)} * args_.shape.slot_bytes;
      const auto ref = find(record_key(name, first + i));
      if (!ref || args_.store->index().entry(*ref).payload_bytes != n_bytes) {
        heads_[head].is_broken[order] = true;
        continue;
      }
      args_.store->pin(*ref);
      heads_.records(head)[first + i] = *ref;
    }
  }
  finish(head, index);
  stats_.n_adopted += heads_[head].n_orders > 0;
}

void Extents::truncate(u32 head, u32 slot_end) {
  heads_[head].slot_end = std::clamp(slot_end, heads_[head].slot_begin, heads_[head].slot_end);
}

void Extents::on_event(const store::Event& event) {
  if (event.tag < kTag + kTagsOfKind) return reads_.take(event);
  const auto ended = writes_.take(event);
  if (!ended || ended->put.is_codebook) return;  // without it the head's index is made again
  const ExtentWrites::Put& put = ended->put;
  if (ended->is_there) {
    args_.store->pin(event.ref);
    heads_.records(put.head)[put.record] = event.ref;
  } else {
    heads_[put.head].is_broken[put.record / args_.shape.records_max] = true;
  }
}

}  // namespace tarn::kv
