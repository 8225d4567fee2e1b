// Goal    blocks of the ring are whole, never overlap while they are held, and half of the ring
//         finds room whenever the ring is empty.
// Method  random lives against a list of who holds which place; the seed is printed.
#include "runtime/service/id_ring.h"

#include <doctest/doctest.h>

#include <deque>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::service::id_ring_test {
namespace {

TEST_CASE("blocks do not overlap, keep what was written, and half of the ring always comes round") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u32 capacity : {2u, 4u, 64u, 1000u}) {
    CAPTURE(capacity);
    std::vector<u32> ids(capacity);
    std::vector<u8> notes(capacity);
    IdRing ring;
    ring.init(ids, notes);
    struct Held {
      IdRing::Block block;
      u32 mark;
    };
    std::deque<Held> held;
    u32 n_refused = 0;
    for (u32 mark = 1; mark < 4000; ++mark) {
      const u32 n_asked = static_cast<u32>(random.below(capacity / 2)) + 1;
      if (auto block = ring.take(n_asked)) {
        const Ids whole = ring.of(*block);
        CHECK(whole.ids.size() == n_asked);
        REQUIRE(whole.ids.data() >= ids.data());
        REQUIRE(whole.ids.data() + n_asked <= ids.data() + capacity);
        ring.shrink(&*block, static_cast<u32>(random.below(n_asked + 1)));
        const Ids mine = ring.of(*block);
        CHECK(mine.ids.size() == block->n);
        CHECK(mine.notes.size() == block->n);
        for (u32& id : mine.ids) id = mark;
        for (u8& note : mine.notes) note = static_cast<u8>(mark);
        held.push_back({*block, mark});
      } else {
        ++n_refused;
        REQUIRE_FALSE(held.empty());
      }
      while (!held.empty() && random.below(3) == 0) {
        for (const u32 id : ring.of(held.front().block).ids) REQUIRE(id == held.front().mark);
        for (const u8 note : ring.of(held.front().block).notes)
          REQUIRE(note == static_cast<u8>(held.front().mark));
        ring.give_back(held.front().block);
        held.pop_front();
      }
    }
    CHECK(n_refused > 0);
    for (; !held.empty(); held.pop_front()) ring.give_back(held.front().block);
    CHECK(ring.take(capacity / 2).has_value());
  }
}

}  // namespace
}  // namespace tarn::service::id_ring_test
