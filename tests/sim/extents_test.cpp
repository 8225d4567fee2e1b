// Goal    an extent is written while the day's budget has room for it, and one whose record gave
//         way before its owner heard of it is none.
// Method  one head's extent of one record, over a store on a simulated disk.
#include "runtime/kv/extents.h"

#include <doctest/doctest.h>

#include "tests/sim/mover_world.h"

namespace tarn::test::extents_test {
namespace {

constexpr kv::ExtentShape extent(u32 records_max) {
  return {.slot_bytes = 512,
          .n_pairs = 1,
          .record_tokens = 8,
          .records_max = records_max,
          .n_heads = 1,
          .n_pieces = 2};
}
constexpr kv::ExtentShape kExtent = extent(1);

struct World : MoverWorld {
  explicit World(const store::StoreLimits& limits, const kv::ExtentShape& shape = kExtent)
      : MoverWorld(16, limits), memory(shape.bytes()), tokens(kSectorBytes) {
    head.init({.shape = shape,
               .store = &bench.store,
               .mover = &mover,
               .clock = &clock,
               .daily_write_bytes = limits.write_bytes_per_day,
               .nonce = 1},
              memory.span());
    extents = &head;
  }
  // True where it began.
  bool put() {
    const u64 n_before = head.stats().bytes_written;
    head.begin(0, 0, kExtent.record_tokens, {.version = head.draw_key().low});
    head.put(0, 0, tokens.span(), kExtent.record_tokens);
    return head.stats().bytes_written > n_before;
  }
  bool finish() {
    head.settle();
    head.finish(0, this);
    return head.head(0).index == this;
  }
  TestRecord record(u64 id) const {
    return record_of(id, {.payload_bytes = kSectorBytes, .n_tokens = 0});
  }

  SectorBuffer memory, tokens;
  kv::Extents head;
};

TEST_CASE("the budget that filled since the last write is an extent's too") {
  constexpr u64 kDayNs = u64{86400} * 1'000'000'000;
  World world({.write_bytes_per_day = 100 * kRecordBytes});
  for (u64 id = 1; id <= 60; ++id) REQUIRE(world.bench.put(world.record(id)));
  CHECK_FALSE(world.put());
  CHECK_FALSE(world.finish());
  world.clock.advance_ns(kDayNs);
  CHECK(world.put());
  CHECK(world.finish());
}

TEST_CASE("an extent whose record gave way before its owner heard of it is none") {
  constexpr u64 kFrames = 4, kFirstTag = 1000;
  World world({.file_bytes = store::kFramesBegin + kFrames * kRecordBytes});
  REQUIRE(world.put());
  world.publish(1);
  for (u64 id = 1; id <= kFrames; ++id) {
    REQUIRE(world.bench.begin_put(world.record(id), kFirstTag + 2 * id) == store::Begun::begun);
  }
  CHECK(world.bench.store.index().n_evicted() == 1);
  CHECK_FALSE(world.finish());
  while (!world.bench.store.idle()) world.mover.pump(1'000'000);
  CHECK(world.put());  // in the place of one of those
  CHECK(world.finish());
}

TEST_CASE("a record that fails while the next one waits for its turn leaves no whole order") {
  World world({.ops_max = 1}, extent(2));
  for (const bool fails : {true, false}) {
    CAPTURE(fails);
    world.disk.script.faults.clear();
    if (fails) world.disk.script.faults = {{.first_call = world.disk.n_calls()}};
    world.head.begin(0, 0, 2 * kExtent.record_tokens, {.version = world.head.draw_key().low});
    for (u32 record = 0; record < 2; ++record) {
      world.head.put(0, record * kExtent.record_tokens, world.tokens.span(), kExtent.record_tokens);
    }
    CHECK(world.finish() == !fails);
  }
}

}  // namespace
}  // namespace tarn::test::extents_test
