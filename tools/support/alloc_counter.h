// tools/support/alloc_counter.h
//
// Counts what this process asks its allocator and the system for, on every thread: malloc and its
// kin, operator new and delete (which call them), mmap, mremap and munmap as called by name. For
// `allocations_after_ready` of the tools and for tests that demand zero. It counts by defining
// these functions in the executable, so it is a library of its own (tarn_alloc_counter), for
// executables. What glibc maps inside itself (a thread's stack) goes through no name and is not
// seen: strace is.
#pragma once

#include "platform/base/types.h"

namespace tarn::tools {

struct AllocCounts {
  u64 n_allocations = 0;  // malloc, calloc, realloc, aligned ones, new
  u64 n_frees = 0;        // of anything but nullptr
  u64 n_maps = 0;         // mmap, mremap, munmap
  u64 allocated_bytes = 0;
};

// False where a sanitizer has the allocator, or the C library is not glibc: the counts then stay 0.
bool alloc_counter_works();
AllocCounts alloc_counts();  // since the process began

// What happened since this object was made.
class AllocScope {
 public:
  AllocScope() : begin_(alloc_counts()) {}
  AllocCounts so_far() const;

 private:
  AllocCounts begin_;
};

}  // namespace tarn::tools
