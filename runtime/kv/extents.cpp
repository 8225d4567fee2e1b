#include "runtime/kv/extents.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::kv {
namespace {

using store::kSectorBytes;

// Behind the tags of reads: of erasures and codebooks one, of puts one for each record of a head.
constexpr u64 kOtherTag = kExtentTag + kExtentPartsMax;
constexpr u64 kFirstPutTag = kOtherTag + 1;

}  // namespace

void Extents::init(const Links& links, std::span<std::byte> region) {
  *this = Extents();
  if (!links.shape.is_on()) return;
  TARN_ASSERT(links.shape.n_pieces <= kExtentPiecesMax);
  TARN_ASSERT(links.shape.slot_bytes <= kExtentPieceBytes - 2 * kSectorBytes);
  TARN_ASSERT(links.shape.n_orders <= kExtentOrdersMax);
  links_ = links;
  Carver carver(region);
  heads_.init(carver, links.shape);
  reads_.init({.heads = &heads_,
               .store = links.store,
               .mover = links.mover,
               .clock = links.clock,
               .stats = &stats_});
}

// ---- Records ------------------------------------------------------------------------------------

store::Key Extents::draw_key() {
  return store::private_key(links_.store->secret(), {links_.nonce, serial_++, 1, 0});
}

// Orders count from 1; 0 is the codebook.
store::Key Extents::key(const ExtentName& name, u64 order, u64 token_idx) const {
  return store::part_key(links_.store->secret(), name.owner,
                         {name.version, u64{name.head} << 32 | order, token_idx});
}

// Finds and pins the record. One of another kind under its key is not ours.
std::optional<store::RecordRef> Extents::find_pinned(const store::Key& key, store::Kind kind) {
  const auto found = links_.store->find(key);
  if (!found || links_.store->index().entry(*found).kind != kind) return std::nullopt;
  links_.store->pin(*found);
  return found;
}

// Pads the payload. False where the day's budget or the store does not take it.
bool Extents::write(store::PutArgs args, u32 order) {
  args.payload = args.payload.first(align_up(args.payload_bytes, kSectorBytes));
  std::ranges::fill(args.payload.subspan(args.payload_bytes), std::byte{0});
  const u64 reserved_bytes = links_.daily_write_bytes / 4 * (2 + order);
  const bool is_affordable =
      links_.daily_write_bytes == 0 ||
      links_.store->stats().budget_left_bytes >= reserved_bytes + args.payload.size();
  if (!is_affordable) return false;
  store::Begun begun = links_.store->put(args);
  for (; begun == store::Begun::busy; begun = links_.store->put(args)) links_.mover->pump(kWaitNs);
  if (begun != store::Begun::begun) return false;
  ++n_puts_;
  stats_.bytes_written += args.payload.size();
  return true;
}

// Unpins the record, and erases it unless another session reads it.
void Extents::erase(store::RecordRef ref) {
  links_.store->unpin(ref);
  const store::RecordIndex& index = links_.store->index();
  if (index.is_current(ref) && index.entry(ref).holds > 0) return;
  while (links_.store->erase(ref, kOtherTag) == store::Begun::busy) links_.mover->pump(kWaitNs);
}

void Extents::on_event(const store::Event& event) {
  if (event.tag < kOtherTag) return reads_.take(event);
  if (event.op != store::Op::put || event.outcome == store::Outcome::returned) return;
  --n_puts_;
  if (event.tag == kOtherTag) return;  // without its codebook the head's index is made again
  const u64 records_of_head = heads_.records(0).size();
  const u32 head = static_cast<u32>((event.tag - kFirstPutTag) / records_of_head);
  const u32 record = static_cast<u32>((event.tag - kFirstPutTag) % records_of_head);
  // In a full store it may have given way to another already.
  if (event.outcome == store::Outcome::ok && links_.store->index().is_current(event.ref)) {
    links_.store->pin(event.ref);
    heads_.records(head)[record] = event.ref;
  } else {
    heads_[head].is_broken[record / links_.shape.records_max] = true;
  }
}

// ---- Building -----------------------------------------------------------------------------------

void Extents::forget_orders(u32 head, u32 begin) {
  for (store::RecordRef& ref :
       heads_.records(head).subspan(u64{begin} * links_.shape.records_max)) {
    if (ref.frame_idx != store::kNoFrame) erase(ref);
    ref = {};
  }
}

void Extents::forget(u32 head) {
  forget_orders(head, 0);
  heads_[head] = {};
}

void Extents::leave(u32 head) {
  for (store::RecordRef& ref : heads_.records(head)) {
    if (ref.frame_idx != store::kNoFrame) links_.store->unpin(ref);
    ref = {};
  }
  heads_[head] = {};
}

void Extents::begin(u32 head, u32 slot_begin, u32 slot_end, const ExtentName& name) {
  TARN_ASSERT(slot_end - slot_begin <= u64{links_.shape.records_max} * links_.shape.record_tokens);
  forget(head);
  heads_[head].name = name;
  heads_[head].slot_begin = slot_begin;
  heads_[head].slot_end = slot_end;
}

void Extents::put(u32 head, u32 token_idx, std::span<std::byte> tokens, u32 n_tokens) {
  const u32 record = token_idx / links_.shape.record_tokens;
  const u32 order = record / links_.shape.records_max;
  TARN_ASSERT(heads_[head].index == nullptr && token_idx % links_.shape.record_tokens == 0);
  TARN_ASSERT(order < links_.shape.n_orders);
  TARN_ASSERT(n_tokens > 0 && n_tokens <= links_.shape.record_tokens);
  if (heads_[head].is_broken[order]) return;
  const bool is_begun =
      write({.kind = store::Kind::extent,
             .key = key(heads_[head].name, order + 1, record % links_.shape.records_max),
             .payload = tokens,
             .payload_bytes = u64{n_tokens} * links_.shape.slot_bytes,
             .tag = kFirstPutTag + head * heads_.records(head).size() + record},
            order);
  // While it waited, an earlier record may have failed.
  if (!is_begun) heads_[head].is_broken[order] = true;
}

void Extents::settle() {
  while (n_puts_ > 0) links_.mover->pump(kWaitNs);
}

void Extents::finish(u32 head, const void* index) {
  TARN_ASSERT(n_puts_ == 0);
  ExtentHead& h = heads_[head];
  for (; h.n_orders < links_.shape.n_orders && !h.is_broken[h.n_orders]; ++h.n_orders) {
    const u32 begin = h.n_orders * links_.shape.records_max;
    if (!reads_.load_record_heads(head, begin, begin + links_.shape.records_max)) break;
  }
  if (h.n_orders == 0) return forget(head);
  forget_orders(head, h.n_orders);
  h.index = index;
}

void Extents::adopt(u32 head, u32 slot_begin, u32 slot_end, u32 n_orders, const ExtentName& name,
                    const void* index) {
  const u32 record_tokens = links_.shape.record_tokens, n_tokens = slot_end - slot_begin;
  begin(head, slot_begin, slot_end, name);
  for (u32 order = 0; order < links_.shape.n_orders; ++order) {
    heads_[head].is_broken[order] = order >= n_orders;
    for (u32 i = 0; i < ceil_div(n_tokens, record_tokens); ++i) {
      const u64 n_bytes =
          u64{std::min(record_tokens, n_tokens - i * record_tokens)} * links_.shape.slot_bytes;
      const auto ref = find_pinned(key(name, order + 1, i), store::Kind::extent);
      if (ref) heads_.records(head)[order * links_.shape.records_max + i] = *ref;
      const bool is_ours = ref && links_.store->head_bytes(*ref) == kSectorBytes &&
                           links_.store->index().entry(*ref).payload_bytes == n_bytes;
      if (!is_ours) heads_[head].is_broken[order] = true;
    }
  }
  finish(head, index);
  stats_.n_adopted += heads_[head].n_orders > 0;
}

void Extents::truncate(u32 head, u32 slot_end) {
  heads_[head].slot_end = std::clamp(slot_end, heads_[head].slot_begin, heads_[head].slot_end);
}

// ---- Codebooks ----------------------------------------------------------------------------------

void Extents::put_codebook(const store::Key& owner, u32 head, std::span<std::byte> bytes,
                           u64 n_bytes) {
  if (n_bytes > store::kPayloadBytesMax) return;
  (void)write({.kind = store::Kind::codebook,
               .key = key({.owner = owner, .head = head}, 0, 0),
               .payload = bytes,
               .payload_bytes = n_bytes,
               .known = store::PutArgs::If::replace,
               .tag = kOtherTag},
              0);
}

u64 Extents::read_codebook(const store::Key& owner, u32 head, std::span<std::byte> out) {
  const auto ref = find_codebook(owner, head);
  if (!ref) return 0;
  const u64 n_bytes = links_.store->index().entry(*ref).payload_bytes;
  const u64 n_sectors = ceil_div(n_bytes, kSectorBytes);
  const bool is_read =
      n_sectors * kSectorBytes <= out.size() && reads_.read(*ref, n_sectors, out.data());
  links_.store->unpin(*ref);
  stats_.n_codebooks_read += is_read;
  return is_read ? n_bytes : 0;
}

void Extents::erase_codebook(const store::Key& owner, u32 head) {
  if (const auto ref = find_codebook(owner, head)) erase(*ref);
}

void Extents::touch_codebook(const store::Key& owner, u32 head) {
  if (const auto ref = find_codebook(owner, head)) links_.store->unpin(*ref);
}

}  // namespace tarn::kv
