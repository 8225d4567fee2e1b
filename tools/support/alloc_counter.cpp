#include "tools/support/alloc_counter.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdarg>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__GLIBC__)
#define TARN_COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define TARN_COUNTS 0
#else
#define TARN_COUNTS 1
#endif
#else
#define TARN_COUNTS 1
#endif

namespace tarn::tools {
namespace {
std::atomic<u64> n_allocations{0}, n_frees{0}, n_maps{0}, allocated_bytes{0};

#if TARN_COUNTS
void count_allocation(u64 bytes) {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  allocated_bytes.fetch_add(bytes, std::memory_order_relaxed);
}
void count(std::atomic<u64>& counter) { counter.fetch_add(1, std::memory_order_relaxed); }
#endif
}  // namespace

bool alloc_counter_works() {
#if TARN_COUNTS
  // Another library may have replaced malloc (an LD_PRELOAD), so this tests it.
  const AllocScope scope;
  void* volatile piece = std::malloc(1);
  std::free(piece);
  return scope.so_far().n_allocations > 0;
#else
  return false;
#endif
}

AllocCounts alloc_counts() {
  return {.n_allocations = n_allocations.load(std::memory_order_relaxed),
          .n_frees = n_frees.load(std::memory_order_relaxed),
          .n_maps = n_maps.load(std::memory_order_relaxed),
          .allocated_bytes = allocated_bytes.load(std::memory_order_relaxed)};
}

AllocCounts AllocScope::so_far() const {
  const AllocCounts now = alloc_counts();
  return {.n_allocations = now.n_allocations - begin_.n_allocations,
          .n_frees = now.n_frees - begin_.n_frees,
          .n_maps = now.n_maps - begin_.n_maps,
          .allocated_bytes = now.allocated_bytes - begin_.allocated_bytes};
}

}  // namespace tarn::tools

#if TARN_COUNTS
// glibc's own allocator under its names for interposers. Its operator new calls malloc.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t n, size_t bytes);
void* __libc_realloc(void* piece, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* piece);

#define TARN_EXPORT __attribute__((visibility("default")))

TARN_EXPORT void* malloc(size_t bytes) {
  tarn::tools::count_allocation(bytes);
  return __libc_malloc(bytes);
}
TARN_EXPORT void* calloc(size_t n, size_t bytes) {
  tarn::tools::count_allocation(n * bytes);
  return __libc_calloc(n, bytes);
}
TARN_EXPORT void* realloc(void* piece, size_t bytes) {
  tarn::tools::count_allocation(bytes);
  return __libc_realloc(piece, bytes);
}
TARN_EXPORT void* memalign(size_t alignment, size_t bytes) {
  tarn::tools::count_allocation(bytes);
  return __libc_memalign(alignment, bytes);
}
TARN_EXPORT void* aligned_alloc(size_t alignment, size_t bytes) {
  tarn::tools::count_allocation(bytes);
  return __libc_memalign(alignment, bytes);
}
TARN_EXPORT int posix_memalign(void** piece, size_t alignment, size_t bytes) {
  if (alignment % sizeof(void*) != 0 || (alignment & (alignment - 1)) != 0 || alignment == 0) {
    return EINVAL;
  }
  tarn::tools::count_allocation(bytes);
  void* made = __libc_memalign(alignment, bytes);
  if (made == nullptr) return ENOMEM;
  *piece = made;
  return 0;
}
TARN_EXPORT void free(void* piece) {
  if (piece != nullptr) tarn::tools::count(tarn::tools::n_frees);
  __libc_free(piece);
}

TARN_EXPORT void* mmap(void* at, size_t bytes, int protection, int flags, int fd, off_t offset) {
  tarn::tools::count(tarn::tools::n_maps);
  const long result = syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
  return reinterpret_cast<void*>(result);
}
TARN_EXPORT void* mmap64(void* at, size_t bytes, int protection, int flags, int fd,
                         off64_t offset) {
  return mmap(at, bytes, protection, flags, fd, offset);
}
TARN_EXPORT int munmap(void* at, size_t bytes) {
  tarn::tools::count(tarn::tools::n_maps);
  return static_cast<int>(syscall(SYS_munmap, at, bytes));
}
TARN_EXPORT void* mremap(void* at, size_t old_bytes, size_t bytes, int flags, ...) {
  tarn::tools::count(tarn::tools::n_maps);
  std::va_list arguments;
  va_start(arguments, flags);
  void* target = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  return reinterpret_cast<void*>(syscall(SYS_mremap, at, old_bytes, bytes, flags, target));
}
}  // extern "C"
#endif
