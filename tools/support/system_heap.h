// The system's heap behind the Heap interface, for executables; the core must not call malloc.
#pragma once

#include "platform/mem/heap.h"

namespace tarn::tools {

class SystemHeap final : public Heap {
 public:
  const char* name() const override { return "system"; }
  void* allocate(u64 bytes, u64 alignment) override;
  void deallocate(void* piece) override;
};

}  // namespace tarn::tools
