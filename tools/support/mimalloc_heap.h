// mimalloc's heap inside a region, for executables: Debian's libmimalloc replaces malloc and new of
// the whole process, which a library must not do. The target tarn_mimalloc exists if libmimalloc is
// found.
//
// libmimalloc 2.0.9 takes at least 64 MiB, in multiples of 32 MiB with that alignment, and never
// releases a region: it must outlive the process' last allocation. Created and used by one thread.
#pragma once

#include "platform/base/result.h"
#include "platform/mem/heap.h"

namespace tarn::tools {

class MimallocHeap final : public Heap {
 public:
  static constexpr u64 kRegionBytesMin = 64 * kMiB;
  static constexpr u64 kRegionGrainBytes = 32 * kMiB;

  // Uses the part of `region` (zeroed memory) that is aligned to kRegionGrainBytes.
  Result<void> init(std::span<std::byte> region);

  const char* name() const override { return "mimalloc"; }
  void* allocate(u64 bytes, u64 alignment) override;
  void deallocate(void* piece) override;

 private:
  void* heap_ = nullptr;  // mi_heap_t
};

}  // namespace tarn::tools
