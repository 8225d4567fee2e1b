// A box with a store on a simulated disk, that is switched on and off, killed and cut from power,
// and what it knows about the records it has put: which bytes may come back under a key, and which
// must.
#pragma once

#include <map>
#include <set>

#include "tests/support/store_harness.h"

namespace tarn::test {

inline constexpr u64 kSimFrameBytes = 12 * kKiB;

inline store::StoreLimits sim_limits(u32 n_frames) {
  return {.file_bytes = store::kFramesBegin + n_frames * kSimFrameBytes,
          .frame_bytes = kSimFrameBytes,
          .head_bytes_max = 3 * kSectorBytes,
          .ops_max = 6,
          .io_deadline_ns = 5'000'000'000};
}

// Ids from 1 to 99 are groups, codebooks and extents, whose bytes follow from the id; from 100 on
// manifests, which have versions.
inline TestRecord world_record(u64 id, u64 version = 0) {
  TestRecordShape shape{.payload_bytes = 5000, .n_tokens = 16, .version = version};
  if (id % 7 == 3) shape = {.payload_bytes = 30'000, .n_tokens = 64, .kind = store::Kind::extent};
  if (id % 7 == 4) shape = {.payload_bytes = 100, .n_tokens = 1200};  // has meta sectors
  if (id % 7 == 5) shape = {.payload_bytes = 8192, .n_tokens = 0, .kind = store::Kind::codebook};
  if (id >= 100)
    shape = {
        .payload_bytes = 3000, .n_tokens = 0, .kind = store::Kind::manifest, .version = version};
  return record_of(id, shape);
}

class SimBox {
 public:
  SimBox(u64 seed, u32 n_frames) : disk(seed), limits_(sim_limits(n_frames)) {}
  SimBox(const SimDisk& image, u32 n_frames) : disk(image), limits_(sim_limits(n_frames)) {}
  ~SimBox() { kill(); }
  SimBox(const SimBox&) = delete;
  SimBox& operator=(const SimBox&) = delete;

  void power_on() {
    io = std::make_unique<SimIo>(disk, clock, 8);
    bench = std::make_unique<StoreHarness>(*io, clock, "store", limits_, 7);
  }
  store::Mode boot() {
    kill();
    power_on();
    return bench->open();
  }
  // kill -9: what is in flight lands or does not.
  void kill() {
    if (bench) bench->was_killed = true;
    io.reset();
    bench.reset();
  }
  // Until nothing is on its way; what would never end is let go.
  void drain() {
    for (u64 i = 0; !bench->store.idle(); ++i) {
      REQUIRE(i < 10'000);
      bench->poll(1'000'000'000);
      io->let_stuck_go();
    }
  }
  void shut_down() {
    drain();
    bench->close();
    kill();
  }
  StoreHarness::Got get(u64 id, u64 version = 0) { return bench->get(world_record(id, version)); }

  SimDisk disk;
  VirtualClock clock;
  std::unique_ptr<SimIo> io;
  std::unique_ptr<StoreHarness> bench;

 private:
  store::StoreLimits limits_;
};

}  // namespace tarn::test
