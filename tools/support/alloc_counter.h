// Counts the process' calls of its allocator and of the system, on every thread: malloc and its
// relatives, operator new and delete (which call them), mmap, mremap and munmap by name. It serves
// `allocations_after_ready` of the tools and tests that demand zero. It counts by defining these
// functions in the executable, so it is a library of its own (tarn_alloc_counter), for executables.
// It does not see glibc's internal mappings (a thread's stack); strace does.
#pragma once

#include "platform/base/types.h"

namespace tarn::tools {

struct AllocCounts {
  u64 n_allocations = 0;  // malloc, calloc, realloc, aligned ones, new
  u64 n_frees = 0;        // of anything but nullptr
  u64 n_maps = 0;         // mmap, mremap, munmap
  u64 allocated_bytes = 0;
};

// False if a sanitizer has the allocator, or the C library is not glibc: then the counts stay 0.
bool alloc_counter_works();
AllocCounts alloc_counts();  // since the process began

// Counts from the construction of this object on.
class AllocScope {
 public:
  AllocScope() : begin_(alloc_counts()) {}
  AllocCounts so_far() const;

 private:
  AllocCounts begin_;
};

}  // namespace tarn::tools
