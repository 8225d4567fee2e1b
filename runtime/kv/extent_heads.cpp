#include "runtime/kv/extent_heads.h"

#include <algorithm>

#include "platform/base/assert.h"
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

// In the order of init(): what lies at sectors first.
u64 ExtentShape::bytes() const {
  if (!is_on()) return 0;
  const u64 n_records = u64{n_heads} * n_orders * records_max;
  const u64 pieces[] = {u64{n_heads} * n_orders * n_pairs * sizeof(u32),
                        n_records * sizeof(store::RecordRef), n_heads * u64{64}};
  u64 sum = n_pieces * kExtentPieceBytes + n_records * kSectorBytes;
  for (const u64 n_bytes : pieces) sum += align_up(n_bytes, 64);
  return align_up(sum, kSectorBytes);
}

void ExtentHeads::init(const ExtentShape& shape, Bump& memory) {
  static_assert(sizeof(ExtentHead) <= 64);
  *this = ExtentHeads();
  shape_ = shape;
  const u64 n_heads = shape.n_heads;
  const u64 n_records = n_heads * records_of_head();
  const u64 n_firsts = n_heads * shape.n_orders * shape.n_pairs;
  const auto record_heads = memory.alloc_bytes(n_records * kSectorBytes, kSectorBytes);
  const auto firsts = memory.alloc_bytes(n_firsts * sizeof(u32), 64);
  const auto refs = memory.alloc_bytes(n_records * sizeof(store::RecordRef), 64);
  const auto heads = memory.alloc_bytes(n_heads * sizeof(ExtentHead), 64);
  TARN_ASSERT(record_heads && firsts && refs && heads);
  record_heads_ = *record_heads;
  firsts_ = {reinterpret_cast<u32*>(firsts->data()), n_firsts};
  refs_ = {reinterpret_cast<store::RecordRef*>(refs->data()), n_records};
  heads_ = {reinterpret_cast<ExtentHead*>(heads->data()), n_heads};
  std::fill(refs_.begin(), refs_.end(), store::RecordRef{});
  std::fill(heads_.begin(), heads_.end(), ExtentHead{});
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
  return refs_.subspan(u64{head} * records_of_head(), records_of_head());
}

std::span<std::byte> ExtentHeads::record_head(u32 head, u32 record) const {
  return record_heads_.subspan((u64{head} * records_of_head() + record) * kSectorBytes,
                               kSectorBytes);
}

}  // namespace tarn::kv
