#include "tools/support/mimalloc_heap.h"

#include <mimalloc.h>

#include "platform/base/checked.h"

namespace tarn::tools {

Result<void> MimallocHeap::init(std::span<std::byte> region) {
  const u64 address = reinterpret_cast<std::uintptr_t>(region.data());
  const u64 front = align_up(address, kRegionGrainBytes) - address;
  const u64 usable = region.size() > front ? region.size() - front : 0;
  const u64 bytes = usable / kRegionGrainBytes * kRegionGrainBytes;
  const Error refused = {.status = Status::invalid_config,
                         .hint =
                             "mimalloc refused the region: make the heap at least 64 MiB, in "
                             "steps of 32 MiB, or use the region heap",
                         .figures = {{{"bytes", region.size()}, {"usable", bytes}}}};
  if (bytes < kRegionBytesMin) return fail(refused);
  mi_arena_id_t arena{};
  constexpr bool kCommitted = true, kLarge = true, kZero = true, kExclusive = true;
  // "Large" means that the memory is not decommitted: it belongs to the plan.
  if (!mi_manage_os_memory_ex(region.data() + front, bytes, kCommitted, kLarge, kZero, -1,
                              kExclusive, &arena)) {
    return fail(refused);
  }
  heap_ = mi_heap_new_in_arena(arena);
  return heap_ != nullptr ? Result<void>{} : fail(refused);
}

void* MimallocHeap::allocate(u64 bytes, u64 alignment) {
  return mi_heap_malloc_aligned(static_cast<mi_heap_t*>(heap_), bytes, alignment);
}

void MimallocHeap::deallocate(void* piece) { mi_free(piece); }

}  // namespace tarn::tools
