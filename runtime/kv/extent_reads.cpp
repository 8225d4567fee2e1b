#include "runtime/kv/extent_reads.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::kv {
namespace {

using store::kSectorBytes;

constexpr u32 kGapSectors = 4;  // unwanted ones that a request takes along to save another

}  // namespace

u64 ExtentShape::record_bytes() const {
  return align_up(u64{record_tokens} * slot_bytes, kSectorBytes);
}

u32 ExtentShape::sector_of(u32 token_idx, u32 byte) const {
  const u64 in_record = u64{token_idx % record_tokens} * slot_bytes + byte;
  return static_cast<u32>(token_idx / record_tokens * (record_bytes() / kSectorBytes) +
                          in_record / kSectorBytes);
}

u64 ExtentShape::bytes() const {
  if (!is_on()) return 0;
  Carver carver;
  ExtentHeads().init(carver, *this);
  return align_up(*carver.n_bytes().get(), kSectorBytes);
}

// Takes the arrays that begin at sectors first.
void ExtentHeads::init(Carver& carver, const ExtentShape& shape) {
  const u64 n_orders = u64{shape.n_heads} * shape.n_orders;
  const u64 n_records = n_orders * shape.records_max;
  shape_ = shape;
  landing_ = carver.take<std::byte>("landing", shape.n_pieces * kExtentPieceBytes, kSectorBytes);
  record_heads_ = carver.take<std::byte>("record heads", n_records * kSectorBytes, kSectorBytes);
  firsts_ = carver.take<u32>("firsts", n_orders * shape.n_pairs);
  refs_ = carver.take<store::RecordRef>("records", n_records);
  heads_ = carver.take<ExtentHead>("heads", shape.n_heads);
  std::ranges::fill(refs_, store::RecordRef{});
  std::ranges::fill(heads_, ExtentHead{});
}

std::span<u32> ExtentHeads::firsts(u32 head, u32 order) const {
  const u64 n_pairs = shape_.n_pairs;
  return firsts_.subspan((u64{head} * shape_.n_orders + order) * n_pairs, n_pairs);
}

std::span<const u32> ExtentHeads::firsts(u32 head) const {
  const u64 n = u64{shape_.n_orders} * shape_.n_pairs;
  return firsts_.subspan(head * n, n);
}

std::span<store::RecordRef> ExtentHeads::records(u32 head) const {
  const u64 n = u64{shape_.n_orders} * shape_.records_max;
  return refs_.subspan(head * n, n);
}

std::span<std::byte> ExtentHeads::record_head(u32 head, u32 record) const {
  const u64 n = u64{shape_.n_orders} * shape_.records_max;
  return record_heads_.subspan((head * n + record) * kSectorBytes, kSectorBytes);
}

// ---- Readings -----------------------------------------------------------------------------------

void ExtentReads::init(const Links& links) {
  TARN_ASSERT(links.heads != nullptr && links.store != nullptr && links.stats != nullptr);
  TARN_ASSERT(links.mover != nullptr && links.clock != nullptr);
  *this = ExtentReads();
  links_ = links;
}

std::span<std::byte> ExtentReads::landed(const Part& part) const {
  return links_.heads->landing().subspan(part.at * kSectorBytes, part.n_sectors * kSectorBytes);
}

void ExtentReads::begin(std::span<ExtentReading> readings) {
  TARN_ASSERT(readings_.empty() && n_parts_ == 0);
  readings_ = readings;
}

void ExtentReads::add(u32 n) {
  TARN_ASSERT(n >= n_added_ && n <= readings_.size());
  n_added_ = n;
  read_more();
}

void ExtentReads::finish(u32 n) {
  TARN_ASSERT(n <= n_added_);
  const u64 start_ns = links_.clock->now_ns();
  const auto is_under_way = [](const ExtentReading& reading) { return reading.n_parts > 0; };
  for (;;) {
    read_more();
    if (next_reading_ >= n && std::ranges::none_of(readings_.first(n), is_under_way)) break;
    const u64 oldest = part_begin_;
    if (next_reading_ < n) deliver_oldest();  // one head may want more than the ring holds
    if (part_begin_ == oldest) links_.mover->pump(kWaitNs);
  }
  links_.stats->wait_ns += links_.clock->now_ns() - start_ns;
}

void ExtentReads::release(u32 n) {
  TARN_ASSERT(n <= n_added_ && next_reading_ >= n);
  free_parts();
  read_more();
}

void ExtentReads::end() {
  next_reading_ = std::max(next_reading_, n_added_);  // or more would be asked for
  while (n_parts_ > 0) links_.mover->pump(kWaitNs);
  for (u64 i = part_begin_; i < part_end_; ++i) part(i).stage = Stage::over;
  free_parts();
  for (const ExtentReading& reading : readings_.first(n_added_)) {
    links_.stats->n_lost += reading.n_lost;
    links_.stats->bytes_used += reading.bytes_used;
  }
  readings_ = {};
  n_added_ = next_reading_ = next_want_ = 0;
}

// Wants from want_begin on that one request can bring.
ExtentReads::Part ExtentReads::next_part(ExtentReading& reading, u32 want_begin) const {
  const u32 record_tokens = links_.heads->shape().record_tokens;
  Part part{.reading = &reading,
            .want_begin = want_begin,
            .want_end = want_begin,
            .record = reading.wants[want_begin].token_idx / record_tokens};
  u64 end = 0;
  for (; part.want_end < reading.wants.size(); ++part.want_end) {
    const u32 token_idx = reading.wants[part.want_end].token_idx;
    if (token_idx / record_tokens != part.record) break;
    const u64 byte = u64{token_idx % record_tokens} * links_.heads->shape().slot_bytes;
    const u64 first = byte / kSectorBytes;
    const u64 last = (byte + links_.heads->shape().slot_bytes - 1) / kSectorBytes;
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
bool ExtentReads::find_room(Part* part) const {
  const u32 n_all = static_cast<u32>(links_.heads->landing().size() / kSectorBytes);
  const u32 n_at_end = n_all - ring_end_;
  const bool is_at_end = part->n_sectors <= n_at_end;
  part->at = is_at_end ? ring_end_ : 0;
  part->n_taken = part->n_sectors + (is_at_end ? 0 : n_at_end);
  return part_end_ - part_begin_ < kExtentPartsMax && n_ring_taken_ + part->n_taken <= n_all;
}

// Returns whether the disk still has the part that is next to be freed. If it keeps the part, the
// store is off and no read begins.
bool ExtentReads::is_stuck() const {
  return part_begin_ < part_end_ && parts_[part_begin_ % kExtentPartsMax].is_lent;
}

store::Begun ExtentReads::begin_part(const Part& next) {
  const u32 head = next.reading->head;
  return begin_read(next, {.ref = links_.heads->records(head)[next.record],
                           .head = links_.heads->record_head(head, next.record),
                           .head_is_known = (*links_.heads)[head].index != nullptr,
                           .is_checked_later = true});
}

store::Begun ExtentReads::begin_read(const Part& next, store::ReadArgs args) {
  const u64 idx = part_end_ % kExtentPartsMax;
  args.payload = landed(next);
  args.first_sector = next.first_sector;
  args.tag = kExtentTag + idx;
  const store::Begun begun = links_.store->read(args);
  if (begun != store::Begun::begun) return begun;
  parts_[idx] = next;
  parts_[idx].stage = Stage::under_way;
  if (next.reading->part_end == 0) next.reading->part_begin = part_end_;
  next.reading->part_end = ++part_end_;
  ring_end_ = next.at + next.n_sectors;
  n_ring_taken_ += next.n_taken;
  ++n_parts_;
  ++next.reading->n_parts;
  ++links_.stats->n_reads;
  links_.stats->bytes_read += next.n_sectors * kSectorBytes;
  return begun;
}

void ExtentReads::read_more() {
  while (next_reading_ < n_added_) {
    ExtentReading& reading = readings_[next_reading_];
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

void ExtentReads::lose(const Part& part) {
  for (u32 i = part.want_begin; i < part.want_end; ++i)
    part.reading->wants[i].token_idx = kExtentLost;
  part.reading->n_lost += std::max(part.want_end - part.want_begin, 1u);
}

// Leaves sectors without wanted tokens unverified.
void ExtentReads::deliver_part(Part& part) const {
  if (part.stage != Stage::landed) return;
  part.stage = Stage::over;
  ExtentReading& reading = *part.reading;
  const u64 slot_bytes = links_.heads->shape().slot_bytes;
  const std::span<const std::byte> sectors = landed(part);
  const auto byte_of = [&](u32 want) {
    const u64 in_record =
        reading.wants[want].token_idx % links_.heads->shape().record_tokens * slot_bytes;
    return in_record - u64{part.first_sector} * kSectorBytes;
  };
  for (u32 begin = part.want_begin, end = begin; begin < part.want_end; begin = end) {
    const u64 first_sector = byte_of(begin) / kSectorBytes;
    u64 end_sector = first_sector;
    for (; end < part.want_end && byte_of(end) / kSectorBytes <= end_sector; ++end) {
      end_sector = (byte_of(end) + slot_bytes - 1) / kSectorBytes + 1;
    }
    const bool holds = links_.store->holds(
        links_.heads->record_head(reading.head, part.record),
        part.first_sector + static_cast<u32>(first_sector),
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

void ExtentReads::deliver(u32 reading_idx) {
  const ExtentReading& reading = readings_[reading_idx];
  for (u64 i = std::max(part_begin_, reading.part_begin); i < reading.part_end; ++i) {
    deliver_part(part(i));
  }
}

// Delivers the oldest parts, so that the ring has room for others.
void ExtentReads::deliver_oldest() {
  for (u64 i = part_begin_; i < part_end_ && part(i).stage != Stage::under_way; ++i) {
    deliver_part(part(i));
  }
  free_parts();
}

void ExtentReads::free_parts() {
  for (; part_begin_ < part_end_; ++part_begin_) {
    const Part& oldest = part(part_begin_);
    if (oldest.stage != Stage::over || oldest.is_lent) break;
    if (oldest.is_corrupt)
      links_.store->reject(links_.heads->records(oldest.reading->head)[oldest.record]);
    n_ring_taken_ -= oldest.n_taken;
  }
  if (part_begin_ == part_end_) ring_end_ = 0;
}

void ExtentReads::take(const store::Event& event) {
  Part& part = parts_[event.tag - kExtentTag];
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

// ---- One after the other ------------------------------------------------------------------------

// Begins a request when there is room for it; where it cannot, its reading has lost one more.
template <class Fn>
void ExtentReads::ask(Part part, Fn&& begin) {
  while (!find_room(&part) && !is_stuck()) links_.mover->pump(kWaitNs);
  store::Begun begun = is_stuck() ? store::Begun::not_now : begin(part);
  while (begun == store::Begun::busy) {
    links_.mover->pump(kWaitNs);
    begun = begin(part);
  }
  if (begun != store::Begun::begun) ++part.reading->n_lost;
}

bool ExtentReads::load_record_heads(u32 head, u32 begin, u32 end) {
  ExtentReading none{.head = head};
  for (u32 record = begin; record < end; ++record) {
    if (links_.heads->records(head)[record].frame_idx == store::kNoFrame) continue;
    ask({.reading = &none, .record = record, .n_sectors = 1},
        [&](const Part& part) { return begin_part(part); });
  }
  while (n_parts_ > 0) links_.mover->pump(kWaitNs);
  return none.n_lost == 0;
}

bool ExtentReads::read(store::RecordRef ref, u64 n_sectors, std::byte* out) {
  ExtentReading none{};
  for (u64 sector = 0; sector < n_sectors; sector += kExtentPieceSectors) {
    const u64 n = std::min<u64>(kExtentPieceSectors, n_sectors - sector);
    ask({.reading = &none,
         .first_sector = static_cast<u32>(sector),
         .n_sectors = static_cast<u32>(n),
         .out = out + sector * kSectorBytes},
        [&](const Part& part) { return begin_read(part, {.ref = ref}); });
  }
  while (n_parts_ > 0) links_.mover->pump(kWaitNs);
  return none.n_lost == 0;
}

}  // namespace tarn::kv
