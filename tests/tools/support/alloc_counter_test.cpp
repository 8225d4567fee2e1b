// Goal    the counter sees every way to ask for memory, and sees none where there is none.
// Method  one call of each kind; a loop without any; threads.
#include "tools/support/alloc_counter.h"

#include <doctest/doctest.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "platform/mem/reserve.h"
#include "tests/support/heap_exercise.h"
#include "tests/support/skip.h"
#include "tools/support/system_heap.h"

namespace tarn::tools::alloc_counter_test {
namespace {

void* volatile g_piece = nullptr;  // so that no pair of calls can be optimised away

TEST_CASE("every kind of allocation counts once") {
  if (!alloc_counter_works()) TARN_SKIP("a sanitizer has the allocator");
  struct Case {
    std::string name;
    std::function<void()> allocate, release;
  };
  const Case cases[] = {
      {"malloc", [] { g_piece = std::malloc(10); }, [] { std::free(g_piece); }},
      {"calloc", [] { g_piece = std::calloc(2, 10); }, [] { std::free(g_piece); }},
      {"realloc", [] { g_piece = std::realloc(nullptr, 10); }, [] { std::free(g_piece); }},
      {"aligned_alloc", [] { g_piece = std::aligned_alloc(64, 64); }, [] { std::free(g_piece); }},
      {"memalign", [] { g_piece = memalign(64, 64); }, [] { std::free(g_piece); }},
      {"posix_memalign",
       [] {
         void* piece = nullptr;
         if (posix_memalign(&piece, 64, 64) == 0) g_piece = piece;
       },
       [] { std::free(g_piece); }},
      {"new", [] { g_piece = new int; }, [] { delete static_cast<int*>(g_piece); }},
      {"new[]", [] { g_piece = new int[5]; }, [] { delete[] static_cast<int*>(g_piece); }},
      {"aligned new", [] { g_piece = ::operator new (64, std::align_val_t{64}); },
       [] { ::operator delete (g_piece, std::align_val_t{64}); }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const AllocScope scope;
    c.allocate();
    const AllocCounts after_allocation = scope.so_far();
    c.release();
    const AllocCounts after_release = scope.so_far();
    CHECK(after_allocation.n_allocations == 1);
    CHECK(after_allocation.allocated_bytes >= 4);
    CHECK(after_allocation.n_frees == 0);
    CHECK(after_release.n_allocations == 1);
    CHECK(after_release.n_frees == 1);
    CHECK(after_release.n_maps == 0);
  }
}

TEST_CASE("mappings count, a reservation among them") {
  if (!alloc_counter_works()) TARN_SKIP("a sanitizer has the allocator");
  const AllocScope scope;
  void* mapped = mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mapped = mremap(mapped, 4096, 8192, MREMAP_MAYMOVE);
  REQUIRE(mapped != MAP_FAILED);
  munmap(mapped, 8192);
  CHECK(scope.so_far().n_maps == 3);
  SystemReserve reserve;
  const auto got = reserve.reserve({.name = "test", .bytes = 4096});
  REQUIRE(got.has_value());
  CHECK(scope.so_far().n_maps == 4);
  reserve.release(got->bytes);
}

TEST_CASE("no allocation is no count, and other threads' are counted") {
  if (!alloc_counter_works()) TARN_SKIP("a sanitizer has the allocator");
  const AllocScope quiet;
  volatile u64 sum = 0;
  for (u64 i = 0; i < 1000; ++i) sum = sum + i;
  const AllocCounts nothing = quiet.so_far();
  CHECK(nothing.n_allocations == 0);
  CHECK(nothing.n_frees == 0);
  CHECK(nothing.n_maps == 0);
  const AllocScope scope;
  std::thread([] {
    g_piece = std::malloc(10);
    std::free(g_piece);
  }).join();
  CHECK(scope.so_far().n_allocations >= 1);
}

TEST_CASE("the system's heap keeps the contract of a heap") {
  SystemHeap heap;
  test::exercise_heap(heap, {}, 3000, [] {});
  CHECK(heap.allocate(~u64{0} - 5, 16) == nullptr);
}

}  // namespace
}  // namespace tarn::tools::alloc_counter_test
