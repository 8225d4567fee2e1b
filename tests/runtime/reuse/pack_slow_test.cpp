// Goal    each byte of a pack matters: flipped, the pack is refused, and the store is as before.
// Method  as pack_test, but every byte in turn.
#include <doctest/doctest.h>

#include "tests/runtime/reuse/pack_world.h"

namespace tarn::reuse::pack_slow_test {
namespace {

TEST_CASE("a pack with any one byte flipped is refused, and leaves nothing") {
  test::PackWorld world;
  (void)world.make_pack();
  world.flip_each(/*stride=*/1);
}

}  // namespace
}  // namespace tarn::reuse::pack_slow_test
