// How long a store takes to come up: it reads the head sector of every frame, which is 1.6 % of a
// file of 260 KiB frames, and rebuilds its index.
//
//   store_scan_bench FILE [GiB] [uring|threads]
//
// Napkin, for 64 GiB: 258,000 reads of 4 KiB, 1.06 GB. A disk that answers 200,000 of them a second
// (many at a time) takes 1.3 s; the checksum of a head takes 0.4 us, so 0.1 s of one core. All
// frames are filled with records of one sector, so that every head is a record's. Measured on a
// busy virtual disk (2026-11, 16 GiB, 64,527 frames): 1.0 to 1.2 s from 16 at a time on, 57,000
// heads a second, so 4.5 s for 64 GiB; one at a time takes five times as long. Build with
// -DTARN_BENCH=ON.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "platform/clock/clock.h"
#include "platform/cpu/crc32c.h"
#include "runtime/store/store.h"
#include "tests/bench/timing.h"
#include "tests/support/seed.h"

namespace tarn::store {
namespace {

constexpr u64 kFrameBytes = 260 * kKiB;

struct Box {
  Box(IoKind kind, const char* path, u64 file_bytes, u32 ops_max)
      : io_memory(io_backend_bytes()),
        limits{.file_bytes = file_bytes, .frame_bytes = kFrameBytes, .ops_max = ops_max},
        memory(store_bytes(limits).value()) {
    const auto made =
        io_backend_create({.kind = kind, .in_flight_max = ops_max, .n_threads = 16}, io_memory);
    if (!made) std::exit(74);
    io = made->backend;
    const StoreOpenArgs args{.io = io,
                             .clock = &clock,
                             .path = path,
                             .limits = limits,
                             .memory = memory,
                             .crc = &crc32c_ways()[0]};
    const u64 begin_ns = clock.now_ns();
    if (const auto opened = store.open(args); !opened) {
      std::printf("%s\n", opened.error().hint);
      std::exit(74);
    }
    opened_ns = clock.now_ns() - begin_ns;
  }
  ~Box() {
    store.close();
    io_backend_destroy(io);
  }
  Box(const Box&) = delete;
  Box& operator=(const Box&) = delete;

  void fill() {
    bench::Mapping payload(kSectorBytes);
    const std::span<std::byte> sector{reinterpret_cast<std::byte*>(payload.bytes), kSectorBytes};
    const u32 n_frames = store.index().n_frames();
    for (u32 begun = 0; begun < n_frames || !store.idle();) {
      while (begun < n_frames && store.put({.key = {test::Random(begun).next(), begun},
                                            .payload = sector,
                                            .payload_bytes = kSectorBytes}) == Begun::begun) {
        ++begun;
      }
      Event events[64];
      const u32 n = store.poll(events, 1'000'000'000);
      for (const Event& event : std::span(events, n)) {
        if (event.outcome != Outcome::ok) std::exit(74);
      }
    }
  }

  std::vector<std::byte> io_memory;
  StoreLimits limits;
  std::vector<std::byte> memory;
  SystemClock clock;
  IoBackend* io = nullptr;
  u64 opened_ns = 0;
  Store store;
};

int run(int argc, char** argv) {
  if (argc < 2) return 64;
  const u64 file_bytes = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 16) * kGiB;
  const IoKind kind =
      argc > 3 && std::string(argv[3]) == "threads" ? IoKind::threads : IoKind::automatic;
  {
    Box box(kind, argv[1], file_bytes, kOpsMax);
    if (box.store.index().n_records() < box.store.index().n_frames()) box.fill();
  }
  for (const u32 ops_max : {1u, 16u, 64u, 256u}) {
    const Box box(kind, argv[1], file_bytes, ops_max);
    const f64 seconds = static_cast<f64>(box.opened_ns) * 1e-9;
    std::printf("%3u at a time: %u records found in %.2f s, %.0f heads/s, %.1f MB read\n", ops_max,
                box.store.index().n_records(), seconds, box.store.index().n_frames() / seconds,
                static_cast<f64>(box.store.index().n_frames() * kSectorBytes) * 1e-6);
  }
  return 0;
}

}  // namespace
}  // namespace tarn::store

int main(int argc, char** argv) { return tarn::store::run(argc, argv); }
