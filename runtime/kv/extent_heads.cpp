#include "runtime/kv/extent_heads.h"

#include <algorithm>

#include "platform/base/checked.h"

namespace tarn::kv {

using store::kSectorBytes;

u64 ExtentShape::record_bytes() const {
  return align_up(u64{record_tokens} * slot_bytes, kSectorBytes);
}

u32 ExtentShape::sector_of(u32 place, u32 byte) const {
  const u64 in_record = u64{place % record_tokens} * slot_bytes + byte;
  return static_cast<u32>(place / record_tokens * (record_bytes() / kSectorBytes) +
                          in_record / kSectorBytes);
}

u64 ExtentShape::bytes() const {
  if (!is_on()) return 0;
  Carver carver;
  ExtentHeads().init(carver, *this);
  return align_up(*carver.n_bytes().get(), kSectorBytes);
}

// What lies at sectors first.
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

}  // namespace tarn::kv
