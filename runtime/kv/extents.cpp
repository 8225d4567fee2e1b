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
static_assert(kExtentPartsMax <= kTagsOfKind && kExtentPutsMax <= kTagsOfKind);
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

std::span<std::byte> Extents::landed(const Part& part) const {
  return landing_.subspan(part.at * kSectorBytes, part.n_sectors * kSectorBytes);
}

std::span<u32> Extents::firsts(u32 head, u32 order) const {
  const u64 n_pairs = args_.shape.n_pairs;
  return firsts_.subspan((u64{head} * args_.shape.n_orders + order) * n_pairs, n_pairs);
}

std::span<const u32> Extents::firsts(u32 head) const {
  const u64 n = u64{args_.shape.n_orders} * args_.shape.n_pairs;
  return firsts_.subspan(head * n, n);
}

std::span<store::RecordRef> Extents::records(u32 head) const {
  return refs_.subspan(u64{head} * records_of_head(), records_of_head());
}

std::span<std::byte> Extents::record_head(u32 head, u32 record) const {
  return record_heads_.subspan((u64{head} * records_of_head() + record) * kSectorBytes,
                               kSectorBytes);
}

// ---- Building -----------------------------------------------------------------------------------

store::Key Extents::draw_key() {
  return store::unshared_key(args_.store->secret(), {nonce_, serial_++, 1, 0});
}

// A record's place in its order, since how many an order may have is of this plan.
store::Key Extents::record_key(const Name& name, u32 record) const {
  const u64 order = record / args_.shape.records_max, place = record % args_.shape.records_max;
  return store::part_key(args_.store->secret(), name.owner,
                         {name.version, u64{name.head} << 32 | (order + 1), place});
}

store::Key Extents::codebook_key(const store::Key& owner, u32 head) const {
  return store::part_key(args_.store->secret(), owner, {0, u64{head} << 32, 0});
}

// Unless another session reads it, too.
void Extents::erase(store::RecordRef ref) {
  args_.store->unpin(ref);
  const store::RecordIndex& index = args_.store->index();
  if (index.is_current(ref) && index.entry(ref).holds > 0) return;
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

void Extents::leave(u32 head) {
  for (store::RecordRef& ref : records(head)) {
    if (ref.frame_idx != store::kNoFrame) args_.store->unpin(ref);
    ref = {};
  }
  heads_[head] = {};
}

void Extents::forget_all() {
  for (u32 head = 0; head < heads_.size(); ++head) forget(head);
}

void Extents::begin(u32 head, u32 slot_begin, u32 slot_end, const Name& name) {
  TARN_ASSERT(slot_end - slot_begin <= u64{args_.shape.records_max} * args_.shape.record_tokens);
  forget(head);
  heads_[head].name = name;
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
  if (!affords(n_padded, order)) h.is_broken[order] = true;
  if (h.is_broken[order]) return;
  const bool is_begun = begin_put({.kind = store::Kind::extent,
                                   .key = record_key(h.name, record),
                                   .payload = tokens.first(n_padded),
                                   .payload_bytes = n_bytes},
                                  {.head = head, .record = record});
  if (!is_begun) h.is_broken[order] = true;
}

// Nobody can do without groups, and a second order is worth less than another layer's first.
bool Extents::affords(u64 n_bytes, u32 order) const {
  const u64 reserved_bytes = args_.daily_write_bytes / 4 * (2 + order);
  return args_.daily_write_bytes == 0 ||
         args_.store->stats().budget_left_bytes >= reserved_bytes + n_bytes;
}

// Under a tag of ours. False where the store does not take it.
bool Extents::begin_put(store::PutArgs args, const Put& put) {
  const auto unused = [](const Put& p) { return !p.is_used; };
  while (n_puts_ > 0 && std::none_of(puts_.begin(), puts_.end(), unused)) {
    args_.mover->pump(kWaitNs);
  }
  const auto slot = std::find_if(puts_.begin(), puts_.end(), unused);
  if (slot == puts_.end()) return false;  // the disk keeps them all: the store is off
  args.tag =
      kTag + static_cast<u64>(Kind::put) * kTagsOfKind + static_cast<u64>(slot - puts_.begin());
  store::Begun begun = args_.store->put(args);
  while (begun == store::Begun::busy) {
    args_.mover->pump(kWaitNs);
    begun = args_.store->put(args);
  }
  if (begun != store::Begun::begun) return false;
  *slot = put;
  slot->is_used = true;
  ++n_puts_;
  stats_.bytes_written += args.payload.size();
  return true;
}

void Extents::end_put(Put& put, const store::Event& event) {
  // In a full store it may have given way to another already.
  const bool is_there = args_.store->index().is_current(event.ref);
  if (put.is_codebook) {
    // Without it the head's index is made again.
  } else if (event.outcome == store::Outcome::ok && is_there) {
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

// A record as we write them: whatever else lies under such a key is somebody else's making.
std::optional<store::RecordRef> Extents::find(const store::Key& key, store::Kind kind) const {
  const auto found = args_.store->find(key);
  if (!found) return std::nullopt;
  const bool has_sector = args_.store->head_bytes(*found) == kSectorBytes;
  if (args_.store->index().entry(*found).kind != kind) return std::nullopt;
  return has_sector || kind == store::Kind::codebook ? found : std::nullopt;
}

void Extents::adopt(u32 head, u32 slot_begin, u32 slot_end, u32 n_orders, const Name& name,
                    const void* index) {
  const u32 record_tokens = args_.shape.record_tokens, n_tokens = slot_end - slot_begin;
  begin(head, slot_begin, slot_end, name);
  for (u32 order = 0; order < args_.shape.n_orders; ++order) {
    const u32 first = order * args_.shape.records_max;
    heads_[head].is_broken[order] = order >= n_orders;
    for (u32 i = 0; i < ceil_div(n_tokens, record_tokens); ++i) {
      const u64 n_bytes =
          u64{std::min(record_tokens, n_tokens - i * record_tokens)} * args_.shape.slot_bytes;
      const auto ref = find(record_key(name, first + i), store::Kind::extent);
      if (!ref || args_.store->index().entry(*ref).payload_bytes != n_bytes) {
        heads_[head].is_broken[order] = true;
        continue;
      }
      args_.store->pin(*ref);
      records(head)[first + i] = *ref;
    }
  }
  finish(head, index);
  stats_.n_adopted += heads_[head].n_orders > 0;
}

// Begins a request when there is room for it; where it cannot, its reading has lost one more.
template <class Fn>
void Extents::ask(Part part, Fn&& begin) {
  while (!find_room(&part) && !is_stuck()) args_.mover->pump(kWaitNs);
  store::Begun begun = is_stuck() ? store::Begun::not_now : begin(part);
  while (begun == store::Begun::busy) {
    args_.mover->pump(kWaitNs);
    begun = begin(part);
  }
  if (begun != store::Begun::begun) ++part.reading->n_lost;
}

// Brings the heads of its records in an order, with their checksums, which stay.
void Extents::load_heads(u32 head, u32 order) {
  Reading none{.head = head};
  const u32 begin = order * args_.shape.records_max;
  for (u32 record = begin; record < begin + args_.shape.records_max; ++record) {
    if (records(head)[record].frame_idx == store::kNoFrame) continue;
    ask({.reading = &none, .record = record, .n_sectors = 1},
        [&](const Part& part) { return begin_part(part); });
  }
  while (n_parts_ > 0) args_.mover->pump(kWaitNs);
  if (none.n_lost > 0) heads_[head].is_broken[order] = true;
}

// ---- Codebooks ----------------------------------------------------------------------------------

void Extents::put_codebook(const store::Key& owner, u32 head, std::span<std::byte> bytes,
                           u64 n_bytes) {
  if (n_bytes > store::kPayloadBytesMax) return;
  const std::span<std::byte> payload = bytes.first(align_up(n_bytes, kSectorBytes));
  std::ranges::fill(payload.subspan(n_bytes), std::byte{0});
  if (!affords(payload.size(), 0)) return;
  (void)begin_put({.kind = store::Kind::codebook,
                   .key = codebook_key(owner, head),
                   .payload = payload,
                   .payload_bytes = n_bytes,
                   .known = store::PutArgs::If::replace},
                  {.is_codebook = true});
}

u64 Extents::read_codebook(const store::Key& owner, u32 head, std::span<std::byte> out) {
  const auto ref = find(codebook_key(owner, head), store::Kind::codebook);
  if (!ref) return 0;
  const u64 n_bytes = args_.store->index().entry(*ref).payload_bytes;
  const u64 n_sectors = ceil_div(n_bytes, kSectorBytes);
  if (n_sectors * kSectorBytes > out.size()) return 0;
  args_.store->pin(*ref);
  Reading none{};
  for (u64 sector = 0; sector < n_sectors; sector += kExtentPieceSectors) {
    const u64 n = std::min<u64>(kExtentPieceSectors, n_sectors - sector);
    ask({.reading = &none,
         .first_sector = static_cast<u32>(sector),
         .n_sectors = static_cast<u32>(n),
         .out = out.data() + sector * kSectorBytes},
        [&](const Part& part) { return begin_read(part, {.ref = *ref}); });
  }
  while (n_parts_ > 0) args_.mover->pump(kWaitNs);
  args_.store->unpin(*ref);
  if (none.n_lost > 0) return 0;
  ++stats_.n_codebooks_read;
  return n_bytes;
}

void Extents::erase_codebook(const store::Key& owner, u32 head) {
  const auto ref = find(codebook_key(owner, head), store::Kind::codebook);
  if (!ref) return;
  args_.store->pin(*ref);
  erase(*ref);
}

void Extents::touch_codebook(const store::Key& owner, u32 head) {
  const auto ref = find(codebook_key(owner, head), store::Kind::codebook);
  if (!ref) return;
  args_.store->pin(*ref);
  args_.store->unpin(*ref);
}

void Extents::truncate(u32 head, u32 slot_end) {
  heads_[head].slot_end = std::clamp(slot_end, heads_[head].slot_begin, heads_[head].slot_end);
}

// ---- Reading ------------------------------------------------------------------------------------

void Extents::begin_reads(std::span<Reading> readings) {
  TARN_ASSERT(readings_.empty() && n_parts_ == 0);
  readings_ = readings;
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
    const u64 oldest = part_begin_;
    if (next_reading_ < n) place_oldest();  // one head may want more than the ring holds
    if (part_begin_ == oldest) args_.mover->pump(kWaitNs);
  }
  stats_.wait_ns += args_.clock->now_ns() - start_ns;
}

void Extents::release_reads(u32 n) {
  TARN_ASSERT(n <= n_added_ && next_reading_ >= n);
  for (const Reading& reading : readings_.first(n)) {
    for (u64 i = std::max(part_begin_, reading.part_begin); i < reading.part_end; ++i) {
      TARN_ASSERT(part(i).stage == Stage::over);
    }
  }
  free_parts();
  read_more();
}

void Extents::end_reads() {
  next_reading_ = std::max(next_reading_, n_added_);  // or more would be asked for
  while (n_parts_ > 0) args_.mover->pump(kWaitNs);
  for (u64 i = part_begin_; i < part_end_; ++i) part(i).stage = Stage::over;
  free_parts();
  for (const Reading& reading : readings_.first(n_added_)) {
    stats_.n_lost += reading.n_lost;
    stats_.bytes_used += reading.bytes_used;
  }
  readings_ = {};
  n_added_ = next_reading_ = next_want_ = 0;
}

// Wants from want_begin on that one request can bring.
Extents::Part Extents::next_part(Reading& reading, u32 want_begin) const {
  const u32 record_tokens = args_.shape.record_tokens;
  Part part{.reading = &reading,
            .want_begin = want_begin,
            .want_end = want_begin,
            .record = reading.wants[want_begin].place / record_tokens};
  u64 end = 0;
  for (; part.want_end < reading.wants.size(); ++part.want_end) {
    const u32 place = reading.wants[part.want_end].place;
    if (place / record_tokens != part.record) break;
    const u64 byte = u64{place % record_tokens} * args_.shape.slot_bytes;
    const u64 first = byte / kSectorBytes;
    const u64 last = (byte + args_.shape.slot_bytes - 1) / kSectorBytes;
    const bool is_first = part.want_end == want_begin;
    if (is_first) part.first_sector = static_cast<u32>(first);
    if (!is_first && first > end + kGapSectors) break;
    if (last + 1 - part.first_sector > kExtentPieceSectors) break;
    end = last + 1;
  }
  part.n_sectors = static_cast<u32>(end - part.first_sector);
  return part;
}

// ---- The ring -----------------------------------------------------------------------------------

// Behind the last one, or at the begin, if it does not fit before the end.
bool Extents::find_room(Part* part) const {
  const u32 n_all = static_cast<u32>(landing_.size() / kSectorBytes);
  const u32 n_at_end = n_all - ring_end_;
  const bool is_at_end = part->n_sectors <= n_at_end;
  part->at = is_at_end ? ring_end_ : 0;
  part->n_taken = part->n_sectors + (is_at_end ? 0 : n_at_end);
  return part_end_ - part_begin_ < kExtentPartsMax && n_ring_taken_ + part->n_taken <= n_all;
}

// The disk has what is next to be free, and may keep it: then the store is off, and no read begins.
bool Extents::is_stuck() const {
  return part_begin_ < part_end_ && parts_[part_begin_ % kExtentPartsMax].is_lent;
}

store::Begun Extents::begin_part(const Part& next) {
  const u32 head = next.reading->head;
  return begin_read(next, {.ref = records(head)[next.record],
                           .head = record_head(head, next.record),
                           .head_is_known = heads_[head].index != nullptr,
                           .is_checked_later = true});
}

store::Begun Extents::begin_read(const Part& next, store::ReadArgs args) {
  const u64 idx = part_end_ % kExtentPartsMax;
  args.payload = landed(next);
  args.first_sector = next.first_sector;
  args.tag = kTag + static_cast<u64>(Kind::part) * kTagsOfKind + idx;
  const store::Begun begun = args_.store->read(args);
  if (begun != store::Begun::begun) return begun;
  parts_[idx] = next;
  parts_[idx].stage = Stage::under_way;
  if (next.reading->n_parts_begun++ == 0) next.reading->part_begin = part_end_;
  next.reading->part_end = ++part_end_;
  ring_end_ = next.at + next.n_sectors;
  n_ring_taken_ += next.n_taken;
  ++n_parts_;
  ++next.reading->n_parts;
  ++stats_.n_reads;
  stats_.bytes_read += next.n_sectors * kSectorBytes;
  return begun;
}

void Extents::read_more() {
  while (next_reading_ < n_added_) {
    Reading& reading = readings_[next_reading_];
    if (next_want_ == reading.wants.size()) {
      ++next_reading_;
      next_want_ = 0;
      continue;
    }
    Part next = next_part(reading, next_want_);
    store::Begun begun = store::Begun::not_now;
    if (find_room(&next)) {
      begun = begin_part(next);
    } else if (!is_stuck()) {
      return;
    }
    if (begun == store::Begun::busy) return;
    if (begun != store::Begun::begun) lose(next);
    next_want_ = next.want_end;
  }
}

void Extents::lose(const Part& part) {
  for (u32 i = part.want_begin; i < part.want_end; ++i) part.reading->wants[i].place = kLost;
  part.reading->n_lost += std::max(part.want_end - part.want_begin, 1u);
}

// Sectors that nobody wants are not verified.
void Extents::place_part(Part& part) const {
  if (part.stage != Stage::landed) return;
  part.stage = Stage::over;
  Reading& reading = *part.reading;
  const u64 slot_bytes = args_.shape.slot_bytes;
  const std::span<const std::byte> sectors = landed(part);
  const auto byte_of = [&](u32 want) {
    const u64 in_record = reading.wants[want].place % args_.shape.record_tokens * slot_bytes;
    return in_record - u64{part.first_sector} * kSectorBytes;
  };
  for (u32 begin = part.want_begin, end = begin; begin < part.want_end; begin = end) {
    const u64 first_sector = byte_of(begin) / kSectorBytes;
    u64 end_sector = first_sector;
    for (; end < part.want_end && byte_of(end) / kSectorBytes <= end_sector; ++end) {
      end_sector = (byte_of(end) + slot_bytes - 1) / kSectorBytes + 1;
    }
    const bool holds = args_.store->holds(
        record_head(reading.head, part.record), part.first_sector + static_cast<u32>(first_sector),
        sectors.subspan(first_sector * kSectorBytes, (end_sector - first_sector) * kSectorBytes));
    if (!holds) {
      part.is_corrupt = true;
      return lose(part);
    }
    for (u32 i = begin; i < end; ++i) {
      std::memcpy(reading.out + reading.wants[i].rank * slot_bytes, sectors.data() + byte_of(i),
                  slot_bytes);
    }
  }
  reading.bytes_used += (part.want_end - part.want_begin) * slot_bytes;
}

void Extents::place(u32 reading_idx) {
  const Reading& reading = readings_[reading_idx];
  for (u64 i = std::max(part_begin_, reading.part_begin); i < reading.part_end; ++i) {
    place_part(part(i));
  }
}

// So that there is room for others; for want of it.
void Extents::place_oldest() {
  for (u64 i = part_begin_; i < part_end_ && part(i).stage != Stage::under_way; ++i) {
    place_part(part(i));
  }
  free_parts();
}

void Extents::free_parts() {
  for (; part_begin_ < part_end_; ++part_begin_) {
    const Part& oldest = part(part_begin_);
    if (oldest.stage != Stage::over || oldest.is_lent) break;
    if (oldest.is_corrupt) args_.store->reject(records(oldest.reading->head)[oldest.record]);
    n_ring_taken_ -= oldest.n_taken;
  }
  if (part_begin_ == part_end_) ring_end_ = 0;
}

void Extents::end_part(Part& part, const store::Event& event) {
  part.is_lent = event.lent;
  if (event.outcome == store::Outcome::returned) return free_parts();
  --n_parts_;
  --part.reading->n_parts;
  const bool is_ok = event.outcome == store::Outcome::ok;
  if (!is_ok) lose(part);
  if (is_ok && part.out != nullptr) std::ranges::copy(landed(part), part.out);
  const bool is_wanted = is_ok && part.want_begin < part.want_end;
  part.stage = is_wanted ? Stage::landed : Stage::over;
  if (!is_wanted) free_parts();
}

void Extents::on_event(const store::Event& event) {
  const u64 kind = (event.tag - kTag) / kTagsOfKind, idx = (event.tag - kTag) % kTagsOfKind;
  if (kind == static_cast<u64>(Kind::part)) end_part(parts_[idx], event);
  if (kind == static_cast<u64>(Kind::put)) end_put(puts_[idx], event);
}

}  // namespace tarn::kv
