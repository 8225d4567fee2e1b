#include "runtime/kv/slot_gather.h"

#include <algorithm>
#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "runtime/store/store.h"

namespace tarn::kv {
namespace {

std::span<const WantedSlot> from_slot(std::span<const WantedSlot> wanted, u64 slot) {
  const auto first =
      std::lower_bound(wanted.begin(), wanted.end(), slot,
                       [](const WantedSlot& w, u64 begin) { return w.slot < begin; });
  return {first, wanted.end()};
}

}  // namespace

u64 SlotGather::bookkeeping_bytes(const GroupShape& shape) {
  return shape.group_bytes() / store::kSectorBytes * sizeof(u32);
}

void SlotGather::init(const GroupShape& shape, std::span<std::byte> bookkeeping) {
  *this = SlotGather();
  shape_ = shape;
  Bump bump(bookkeeping);
  const auto sectors = bump.alloc<u32>(shape.group_bytes() / store::kSectorBytes);
  TARN_ASSERT(sectors.has_value());
  sectors_ = *sectors;
}

void SlotGather::begin(const GatherArgs* args) {
  TARN_ASSERT(args_ == nullptr && args->wanted.size() == args->out.size());
  TARN_ASSERT(args->wanted.size() == shape_.n_kv_heads);
  args_ = args;
  is_lost_ = false;
}

bool SlotGather::end() {
  args_ = nullptr;
  return !is_lost_;
}

std::optional<u32> SlotGather::next_group(u32 from) const {
  std::optional<u32> group;
  for (const std::span<const WantedSlot> wanted : args_->wanted) {
    const auto rest = from_slot(wanted, u64{from} * shape_.page_tokens);
    if (rest.empty()) continue;
    const u32 next = rest.front().slot / shape_.page_tokens;
    if (!group || next < *group) group = next;
  }
  return group;
}

std::span<const WantedSlot> SlotGather::wanted_of(u32 kv_head, u32 group) const {
  const auto rest = from_slot(args_->wanted[kv_head], u64{group} * shape_.page_tokens);
  const auto behind = from_slot(rest, (group + u64{1}) * shape_.page_tokens);
  return rest.first(rest.size() - behind.size());
}

std::span<const u32> SlotGather::sectors(u32 group) const {
  const u64 slot_bytes = u64{2} * shape_.vector_bytes;
  u32 n = 0;
  for (u32 head = 0; head < shape_.n_kv_heads; ++head) {
    for (const WantedSlot& wanted : wanted_of(head, group)) {
      const u64 begin = head * shape_.page_bytes() + wanted.slot % shape_.page_tokens * slot_bytes;
      u64 sector = begin / store::kSectorBytes;
      if (n > 0) sector = std::max(sector, sectors_[n - 1] + u64{1});
      for (; sector * store::kSectorBytes < begin + slot_bytes; ++sector) {
        sectors_[n++] = static_cast<u32>(sector);
      }
    }
  }
  return sectors_.first(n);
}

u64 SlotGather::copy(u32 group, const u8* bytes) const {
  const u64 slot_bytes = u64{2} * shape_.vector_bytes;
  u64 n_bytes = 0;
  for (u32 head = 0; head < shape_.n_kv_heads; ++head) {
    const u8* page = bytes + head * shape_.page_bytes();
    const std::span<const WantedSlot> wanted = wanted_of(head, group);
    for (const WantedSlot& w : wanted) {
      std::memcpy(args_->out[head] + w.place * slot_bytes,
                  page + w.slot % shape_.page_tokens * slot_bytes, slot_bytes);
    }
    n_bytes += wanted.size() * slot_bytes;
  }
  return n_bytes;
}

}  // namespace tarn::kv
