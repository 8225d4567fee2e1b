#include "runtime/kv/slot_gather.h"

#include <algorithm>
#include <cstring>

#include "runtime/store/store.h"

namespace tarn::kv {
namespace {

std::span<const WantedSlot> from_slot(std::span<const WantedSlot> wanted, u64 slot) {
  const auto first =
      std::lower_bound(wanted.begin(), wanted.end(), slot,
                       [](const WantedSlot& w, u64 begin) { return w.slot < begin; });
  return {first, wanted.end()};
}

std::span<const WantedSlot> in_group(std::span<const WantedSlot> wanted, u64 page_tokens,
                                     u32 group) {
  const auto rest = from_slot(wanted, group * page_tokens);
  const auto behind = from_slot(rest, (group + u64{1}) * page_tokens);
  return rest.first(rest.size() - behind.size());
}

}  // namespace

std::optional<u32> next_wanted_group(const GatherArgs& args, const GroupShape& shape, u32 from) {
  std::optional<u32> group;
  for (const std::span<const WantedSlot> wanted : args.wanted) {
    const auto rest = from_slot(wanted, u64{from} * shape.page_tokens);
    if (rest.empty()) continue;
    const u32 next = rest.front().slot / shape.page_tokens;
    if (!group || next < *group) group = next;
  }
  return group;
}

std::span<const u32> wanted_sectors(const GatherArgs& args, const GroupShape& shape, u32 group,
                                    std::span<u32> out) {
  const u64 slot_bytes = u64{2} * shape.vector_bytes;
  u32 n = 0;
  for (u32 head = 0; head < shape.n_kv_heads; ++head) {
    for (const WantedSlot& w : in_group(args.wanted[head], shape.page_tokens, group)) {
      const u64 begin = head * shape.page_bytes() + w.slot % shape.page_tokens * slot_bytes;
      u64 sector = begin / store::kSectorBytes;
      if (n > 0) sector = std::max(sector, out[n - 1] + u64{1});
      for (; sector * store::kSectorBytes < begin + slot_bytes; ++sector) {
        out[n++] = static_cast<u32>(sector);
      }
    }
  }
  return out.first(n);
}

u64 copy_wanted(const GatherArgs& args, const GroupShape& shape, u32 group, const u8* bytes) {
  const u64 slot_bytes = u64{2} * shape.vector_bytes;
  u64 n_bytes = 0;
  for (u32 head = 0; head < shape.n_kv_heads; ++head) {
    const u8* page = bytes + head * shape.page_bytes();
    const auto wanted = in_group(args.wanted[head], shape.page_tokens, group);
    for (const WantedSlot& w : wanted) {
      std::memcpy(args.out[head] + w.rank * slot_bytes,
                  page + w.slot % shape.page_tokens * slot_bytes, slot_bytes);
    }
    n_bytes += wanted.size() * slot_bytes;
  }
  return n_bytes;
}

}  // namespace tarn::kv
