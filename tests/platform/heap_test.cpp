// Goal    a heap in a region hands out pieces that do not touch each other, refuses when full, and
//         is whole again when everything came back.
// Method  random work from a printed seed with the invariants walked after every call; the borders.
#include "platform/mem/heap.h"

#include <doctest/doctest.h>

#include <vector>

#include "tests/support/heap_exercise.h"

namespace tarn::heap_test {
namespace {

TEST_CASE("random work keeps the invariants and leaves nothing behind") {
  for (const u64 shift : {0u, 1u, 8u}) {  // regions need not be aligned
    CAPTURE(shift);
    std::vector<std::byte> memory(60'000);
    const auto region = std::span(memory).subspan(shift);
    RegionHeap heap;
    heap.init(region);
    test::exercise_heap(heap, region, 6000, [&] { heap.check_invariants(); });
    CHECK(heap.used_bytes() == 0);
    CHECK(heap.used_bytes_max() > 40'000);  // it was nearly full at some time
    void* all = heap.allocate(memory.size() - 128, 16);
    CHECK(all != nullptr);  // one piece again
    heap.deallocate(all);
  }
}

TEST_CASE("a heap is full when it is full, and takes what is left") {
  alignas(16) std::byte memory[64 + 16];
  RegionHeap heap;
  heap.init(memory);
  CHECK(heap.allocate(49, 1) == nullptr);
  CHECK(heap.allocate(~u64{0}, 1) == nullptr);
  CHECK(heap.allocate(~u64{0} - 20, 16) == nullptr);
  CHECK(heap.used_bytes() == 0);
  void* first = heap.allocate(0, 1);
  void* second = heap.allocate(16, 16);
  CHECK(first != nullptr);
  CHECK(second != nullptr);
  CHECK(first != second);
  CHECK(heap.allocate(0, 1) == nullptr);
  heap.check_invariants();
  heap.deallocate(first);
  heap.deallocate(second);
  CHECK(heap.allocate(48, 16) != nullptr);
  heap.check_invariants();
}

}  // namespace
}  // namespace tarn::heap_test
