// Goal    a mimalloc heap stays inside its region and is refused what the library cannot take.
// Method  the exercise that every heap passes, over a real reservation; regions that are too small.
#include <doctest/doctest.h>

#include "tests/support/skip.h"

#ifdef TARN_HAVE_MIMALLOC
#include "platform/mem/reserve.h"
#include "tests/support/heap_exercise.h"
#include "tools/support/mimalloc_heap.h"
#endif

namespace tarn::tools::mimalloc_test {
namespace {

TEST_CASE("a mimalloc heap lies in its region") {
#ifndef TARN_HAVE_MIMALLOC
  TARN_SKIP("this build has no mimalloc");
#else
  SystemReserve reserve;
  // Its alignment costs up to one grain. Never released: mimalloc keeps it.
  const auto got =
      reserve.reserve({.name = "heap",
                       .bytes = MimallocHeap::kRegionBytesMin + MimallocHeap::kRegionGrainBytes,
                       .touch = false});
  REQUIRE(got.has_value());
  MimallocHeap small;
  CHECK_FALSE(small.init(got->bytes.first(16 * kMiB)).has_value());
  MimallocHeap heap;
  REQUIRE(heap.init(got->bytes).has_value());
  test::exercise_heap(heap, got->bytes, 20'000, [] {});
  CHECK(heap.allocate(u64{1} << 30, 16) == nullptr);  // more than the region: no way out of it
#endif
}

}  // namespace
}  // namespace tarn::tools::mimalloc_test
