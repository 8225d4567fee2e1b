#include "tools/support/system_heap.h"

#include <cstdlib>

#include "platform/base/checked.h"

namespace tarn::tools {

void* SystemHeap::allocate(u64 bytes, u64 alignment) {
  const u64 grain = alignment < sizeof(void*) ? sizeof(void*) : alignment;
  const auto rounded = Checked(bytes == 0 ? 1 : bytes).aligned_up(grain).get();
  return rounded ? std::aligned_alloc(grain, *rounded) : nullptr;
}

void SystemHeap::deallocate(void* piece) { std::free(piece); }

}  // namespace tarn::tools
