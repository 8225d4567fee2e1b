// Goal    however many exports and imports an engine has made, the tags of their operations stay in
//         their range: those behind it are the extents'.
// Method  more operations than there are tags, by a store that begins each.
#include <doctest/doctest.h>

#include "runtime/reuse/blocking_store.h"

namespace tarn::reuse::blocking_store_test {
namespace {

TEST_CASE("tags of operations stay in their range") {
  constexpr u64 kFirst = 129;
  BlockingStore ops;
  ops.init(nullptr, {}, kFirst, nullptr, nullptr);
  u64 before = kFirst - 1, n_wrong = 0;
  for (u64 i = 0; i < 3 * kOpsTags; ++i) {
    ops.begin([&](u64 tag) {
      n_wrong += tag < kFirst || tag >= kFirst + kOpsTags || tag == before;
      before = tag;
      return store::Begun::begun;
    });
  }
  CHECK(n_wrong == 0);
}

}  // namespace
}  // namespace tarn::reuse::blocking_store_test
