#include "runtime/kv/extents.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "platform/base/checked.h"

namespace tarn::kv {
namespace {

using store::kSectorBytes;

constexpr u64 kWaitNs = 10'000'000;  // of one look at the disk
constexpr u64 kPieceBytes = kExtentPieceSectors * kSectorBytes;
constexpr u32 kTagsOfKind = 256;
constexpr u32 kGapSectors = 4;  // unwanted ones that a request takes along to save another

}  // namespace

u64 ExtentShape::record_bytes() const {
  return align_up(u64{record_tokens} * slot_bytes, kSectorBytes);
}

u32 ExtentShape::sector_of(u32 place, u32 byte) const {
  const u64 in_record = u64{place % record_tokens} * slot_bytes + byte;
  return static_cast<u32>(place / record_tokens * (record_bytes() / kSectorBytes) +
                          in_record / kSectorBytes);
}

// In the order of init(): what lies at sectors first.
u64 ExtentShape::bytes() const {
  if (!is_on()) return 0;
  const u64 n_records = u64{n_heads} * n_orders * records_max;
  const u64 pieces[] = {u64{n_heads} * n_orders * n_pairs * sizeof(u32),
                        n_records * sizeof(store::RecordRef), n_heads * u64{64}};
  u64 sum = n_pieces * kPieceBytes + n_records * kSectorBytes;
  for (const u64 n_bytes : pieces) sum += align_up(n_bytes, 64);
  return align_up(sum, kSectorBytes);
}

void Extents::init(const Args& args, std::span<std::byte> region) {
  static_assert(sizeof(Head) <= 64);
  *this = Extents();
  if (!args.shape.is_on()) return;
  TARN_ASSERT(args.store != nullptr && args.mover != nullptr && args.clock != nullptr);
  TARN_ASSERT(args.shape.n_pieces <= kExtentPiecesMax && region.size() >= args.shape.bytes());
  TARN_ASSERT(args.shape.slot_bytes <= kPieceBytes - 2 * kSectorBytes);
  TARN_ASSERT(args.shape.n_orders > 0 && args.shape.n_orders <= kExtentOrdersMax);
  args_ = args;
  const u64 n_heads = args.shape.n_heads;
  const u64 n_records = n_heads * records_of_head();
  const u64 n_firsts = n_heads * args.shape.n_orders * args.shape.n_pairs;
  Bump bump(region);
  const auto landing = bump.alloc_bytes(args.shape.n_pieces * kPieceBytes, kSectorBytes);
  const auto record_heads = bump.alloc_bytes(n_records * kSectorBytes, kSectorBytes);
  const auto firsts = bump.alloc_bytes(n_firsts * sizeof(u32), 64);
  const auto refs = bump.alloc_bytes(n_records * sizeof(store::RecordRef), 64);
  const auto heads = bump.alloc_bytes(n_heads * sizeof(Head), 64);
  TARN_ASSERT(landing && record_heads && firsts && refs && heads);
  landing_ = *landing;
  record_heads_ = *record_heads;
  firsts_ = {reinterpret_cast<u32*>(firsts->data()), n_firsts};
  refs_ = {reinterpret_cast<store::RecordRef*>(refs->data()), n_records};
  heads_ = {reinterpret_cast<Head*>(heads->data()), n_heads};
  std::fill(refs_.begin(), refs_.end(), store::RecordRef{});
  std::fill(heads_.begin(), heads_.end(), Head{});
}

std::span<std::byte> Extents::piece(u32 idx) const {
  return landing_.subspan(idx * kPieceBytes, kPieceBytes);
}

std::span<u32> Extents::firsts(u32 head, u32 order) const {
  const u64 n_pairs = args_.shape.n_pairs;
  return firsts_.subspan((u64{head} * args_.shape.n_orders + order) * n_pairs, n_pairs);
}

std::span<store::RecordRef> Extents::records(u32 head) const {
  return refs_.subspan(u64{head} * records_of_head(), records_of_head());
}

std::span<std::byte> Extents::record_head(u32 head, u32 record) const {
  return record_heads_.subspan((u64{head} * records_of_head() + record) * kSectorBytes,
                               kSectorBytes);
}

// ---- Building -----------------------------------------------------------------------------------

void Extents::erase(store::RecordRef ref) {
  args_.store->unpin(ref);
  const u64 tag = kTag + static_cast<u64>(Kind::erase) * kTagsOfKind;
  while (args_.store->erase(ref, tag) == store::Begun::busy) args_.mover->pump(kWaitNs);
}

void Extents::forget_orders(u32 head, u32 begin) {
  for (store::RecordRef& ref : records(head).subspan(u64{begin} * args_.shape.records_max)) {
    if (ref.frame_idx != store::kNoFrame) erase(ref);
    ref = {};
  }
}

void Extents::forget(u32 head) {
  forget_orders(head, 0);
  heads_[head] = {};
}

void Extents::forget_all() {
  for (u32 head = 0; head < heads_.size(); ++head) forget(head);
}

void Extents::begin(u32 head, u32 slot_begin, u32 slot_end) {
  TARN_ASSERT(slot_end - slot_begin <= u64{args_.shape.records_max} * args_.shape.record_tokens);
  forget(head);
  heads_[head].slot_begin = slot_begin;
  heads_[head].slot_end = slot_end;
}

void Extents::put(u32 head, u32 place, std::span<std::byte> tokens, u32 n_tokens) {
  Head& h = heads_[head];
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
  // Nobody can do without groups, and a second order is worth less than another layer's first.
  const u64 reserved_bytes = args_.daily_write_bytes / 4 * (2 + order);
  const bool is_budgeted = args_.daily_write_bytes > 0;
  if (is_budgeted && args_.store->stats().budget_left_bytes < reserved_bytes + n_padded) {
    h.is_broken[order] = true;
  }
  if (h.is_broken[order]) return;
  const auto unused = [](const Put& p) { return !p.is_used; };
  while (n_puts_ > 0 && std::none_of(puts_.begin(), puts_.end(), unused)) {
    args_.mover->pump(kWaitNs);
  }
  const auto put = std::find_if(puts_.begin(), puts_.end(), unused);
  if (put == puts_.end()) {  // the disk keeps them all: the store is off
    h.is_broken[order] = true;
    return;
  }
  const u64 slot = static_cast<u64>(put - puts_.begin());
  const std::array<u64, 4> words = {nonce_, head, serial_++, ~u64{0}};
  const store::PutArgs args{
      .kind = store::Kind::extent,
      .key = store::root_key(args_.store->secret(), std::as_bytes(std::span(words))),
      .payload = tokens.first(n_padded),
      .payload_bytes = n_bytes,
      .tag = kTag + static_cast<u64>(Kind::put) * kTagsOfKind + slot};
  store::Begun begun = args_.store->put(args);
  while (begun == store::Begun::busy) {
    args_.mover->pump(kWaitNs);
    begun = args_.store->put(args);
  }
  if (begun != store::Begun::begun) {
    h.is_broken[order] = true;
    return;
  }
  *put = {.is_used = true, .head = head, .record = record};
  ++n_puts_;
  stats_.bytes_written += n_padded;
}

void Extents::end_put(Put& put, const store::Event& event) {
  if (event.outcome == store::Outcome::ok) {
    args_.store->pin(event.ref);
    records(put.head)[put.record] = event.ref;
  } else if (event.outcome != store::Outcome::returned) {
    heads_[put.head].is_broken[put.record / args_.shape.records_max] = true;
  }
  if (event.outcome != store::Outcome::returned) --n_puts_;
  put.is_used = event.lent;
}

void Extents::settle() {
  while (n_puts_ > 0) args_.mover->pump(kWaitNs);
}

void Extents::finish(u32 head, const void* index) {
  TARN_ASSERT(n_puts_ == 0);
  Head& h = heads_[head];
  for (; h.n_orders < args_.shape.n_orders; ++h.n_orders) {
    if (!h.is_broken[h.n_orders]) load_heads(head, h.n_orders);
    if (h.is_broken[h.n_orders]) break;
  }
  if (h.n_orders == 0) return forget(head);
  forget_orders(head, h.n_orders);
  h.index = index;
}

// Brings the heads of its records in an order, with their checksums, which stay.
void Extents::load_heads(u32 head, u32 order) {
  Reading none{.head = head};
  const u32 begin = order * args_.shape.records_max;
  for (u32 record = begin; record < begin + args_.shape.records_max; ++record) {
    if (records(head)[record].frame_idx == store::kNoFrame) continue;
    u32 idx = 0;
    while (idx < args_.shape.n_pieces && parts_[idx].is_used) {
      if (++idx < args_.shape.n_pieces || n_parts_ == 0) continue;
      args_.mover->pump(kWaitNs);
      idx = 0;
    }
    const bool has_begun =
        idx < args_.shape.n_pieces && begin_part(idx, {.reading = &none}, record, 1);
    if (!has_begun) ++none.n_lost;
  }
  while (n_parts_ > 0) args_.mover->pump(kWaitNs);
  if (none.n_lost > 0) heads_[head].is_broken[order] = true;
}

void Extents::truncate(u32 head, u32 slot_end) {
  heads_[head].slot_end = std::clamp(slot_end, heads_[head].slot_begin, heads_[head].slot_end);
}

// ---- Reading ------------------------------------------------------------------------------------

void Extents::begin_reads(std::span<Reading> readings) {
  TARN_ASSERT(readings_.empty() && n_parts_ == 0);
  readings_ = readings;
  n_added_ = next_reading_ = next_want_ = 0;
}

void Extents::add_reads(u32 n) {
  TARN_ASSERT(n >= n_added_ && n <= readings_.size());
  n_added_ = n;
  read_more();
}

void Extents::finish_reads(u32 n) {
  TARN_ASSERT(n <= n_added_);
  const u64 start_ns = args_.clock->now_ns();
  const auto is_under_way = [](const Reading& reading) { return reading.n_parts > 0; };
  for (;;) {
    read_more();
    if (next_reading_ >= n && std::ranges::none_of(readings_.first(n), is_under_way)) break;
    args_.mover->pump(kWaitNs);
  }
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
}

void Extents::end_reads() {
  finish_reads(n_added_);
  TARN_ASSERT(n_parts_ == 0);
  for (const Reading& reading : readings_.first(n_added_)) stats_.n_lost += reading.n_lost;
  readings_ = {};
  n_added_ = next_reading_ = 0;
}

// Wants from want_begin on that one request can bring.
Extents::Part Extents::next_part(Reading& reading, u32 want_begin, u32* n_sectors) const {
  const u32 record_tokens = args_.shape.record_tokens;
  const u32 record = reading.wants[want_begin].place / record_tokens;
  Part part{.reading = &reading, .want_begin = want_begin, .want_end = want_begin};
  u64 end = 0;
  for (; part.want_end < reading.wants.size(); ++part.want_end) {
    const u32 place = reading.wants[part.want_end].place;
    if (place / record_tokens != record) break;
    const u64 byte = u64{place % record_tokens} * args_.shape.slot_bytes;
    const u64 first = byte / kSectorBytes;
    const u64 last = (byte + args_.shape.slot_bytes - 1) / kSectorBytes;
    const bool is_first = part.want_end == want_begin;
    if (is_first) part.first_sector = static_cast<u32>(first);
    if (!is_first && first > end + kGapSectors) break;
    if (last + 1 - part.first_sector > kExtentPieceSectors) break;
    end = last + 1;
  }
  *n_sectors = static_cast<u32>(end - part.first_sector);
  return part;
}

bool Extents::begin_part(u32 idx, const Part& part, u32 record, u32 n_sectors) {
  const u32 head = part.reading->head;
  store::Begun begun = store::Begun::busy;
  while (begun == store::Begun::busy) {
    begun = args_.store->read({.ref = records(head)[record],
                               .payload = piece(idx).first(n_sectors * kSectorBytes),
                               .first_sector = part.first_sector,
                               .head = record_head(head, record),
                               .head_is_known = heads_[head].index != nullptr,
                               .tag = kTag + static_cast<u64>(Kind::part) * kTagsOfKind + idx});
    if (begun == store::Begun::busy) args_.mover->pump(kWaitNs);
  }
  if (begun != store::Begun::begun) return false;
  parts_[idx] = part;
  parts_[idx].is_used = true;
  ++n_parts_;
  ++part.reading->n_parts;
  ++stats_.n_reads;
  stats_.bytes_read += n_sectors * kSectorBytes;
  return true;
}

void Extents::read_more() {
  for (u32 idx = 0; idx < args_.shape.n_pieces && next_reading_ < n_added_;) {
    Reading& reading = readings_[next_reading_];
    if (next_want_ == reading.wants.size()) {
      ++next_reading_;
      next_want_ = 0;
      continue;
    }
    if (parts_[idx].is_used) {
      if (++idx == args_.shape.n_pieces && n_parts_ == 0) lose_rest();
      continue;
    }
    u32 n_sectors = 0;
    Part part = next_part(reading, next_want_, &n_sectors);
    next_want_ = part.want_end;  // before pump() comes here again
    const u32 record = reading.wants[part.want_begin].place / args_.shape.record_tokens;
    if (!begin_part(idx, part, record, n_sectors)) lose(part);
  }
}

// The disk has not given back a single piece, so the store is off.
void Extents::lose_rest() {
  for (; next_reading_ < n_added_; ++next_reading_, next_want_ = 0) {
    Reading& reading = readings_[next_reading_];
    Part rest{.reading = &reading,
              .want_begin = next_want_,
              .want_end = static_cast<u32>(reading.wants.size())};
    if (rest.want_begin < rest.want_end) lose(rest);
  }
}

void Extents::lose(Part& part) {
  for (u32 i = part.want_begin; i < part.want_end; ++i) part.reading->wants[i].place = kLost;
  part.reading->n_lost += std::max(part.want_end - part.want_begin, 1u);
}

void Extents::end_part(Part& part, const store::Event& event) {
  if (event.outcome == store::Outcome::ok) {
    const u64 slot_bytes = args_.shape.slot_bytes;
    const std::byte* landed = piece(static_cast<u32>(&part - parts_.data())).data();
    for (u32 i = part.want_begin; i < part.want_end; ++i) {
      const Want& want = part.reading->wants[i];
      const u64 byte = u64{want.place % args_.shape.record_tokens} * slot_bytes -
                       u64{part.first_sector} * kSectorBytes;
      std::memcpy(part.reading->out + want.rank * slot_bytes, landed + byte, slot_bytes);
    }
    stats_.bytes_used += (part.want_end - part.want_begin) * slot_bytes;
  } else if (event.outcome != store::Outcome::returned) {
    lose(part);
  }
  if (event.outcome != store::Outcome::returned) {
    --n_parts_;
    --part.reading->n_parts;
  }
  part.is_used = event.lent;
}

void Extents::on_event(const store::Event& event) {
  const u64 kind = (event.tag - kTag) / kTagsOfKind, idx = (event.tag - kTag) % kTagsOfKind;
  if (kind == static_cast<u64>(Kind::part)) end_part(parts_[idx], event);
  if (kind == static_cast<u64>(Kind::put)) end_put(puts_[idx], event);
}

}  // namespace tarn::kv
