// How fast the store writes and reads records of 256 KiB, checksums and syncs included, to be held
// against what fio gets out of the same file system at the same time, which
// tests/bench/store_against_fio.py does:
//
//   store_bench FILE [MiB] [buffers at a time] [uring|threads]
//
// The file is written twice, so that its second time (printed too) meets blocks that exist. Build
// with -DTARN_BENCH=ON.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "platform/clock/clock.h"
#include "platform/cpu/crc32c.h"
#include "runtime/store/store.h"
#include "tests/bench/timing.h"
#include "tests/support/seed.h"

namespace tarn::store {
namespace {

constexpr u64 kRecordBytes = 256 * kKiB;
constexpr RecordShape kShape{.payload_bytes = kRecordBytes, .n_tokens = 64};

struct Bench {
  Store& store;
  Clock& clock;
  bench::Mapping buffers;
  u32 depth;
  std::vector<u32> tokens = std::vector<u32>(64, 7);

  std::span<std::byte> buffer(u64 idx) {
    return {reinterpret_cast<std::byte*>(buffers.bytes) + idx * kRecordBytes, kRecordBytes};
  }
  Key key(u64 id) const { return {test::Random(id).next(), id}; }

  // MB/s of n operations, `depth` buffers at a time; a write gives its buffer back before its end.
  template <class Begin>
  f64 run(u64 n, Begin&& begin) {
    constexpr u64 kNone = ~u64{0};
    std::vector<u64> idle, buffer_of(n, kNone);
    for (u64 i = 0; i < depth; ++i) idle.push_back(i);
    const u64 start_ns = clock.now_ns();
    u64 n_begun = 0, n_ended = 0;
    while (n_ended < n) {
      while (n_begun < n && !idle.empty() && begin(n_begun, idle.back()) == Begun::begun) {
        buffer_of[n_begun++] = idle.back();
        idle.pop_back();
      }
      Event events[64];
      const u32 n_events = store.poll(events, 1'000'000'000);
      for (const Event& event : std::span(events, n_events)) {
        if (event.outcome != Outcome::ok && event.outcome != Outcome::written) std::exit(74);
        if (buffer_of[event.tag] != kNone) idle.push_back(buffer_of[event.tag]);
        buffer_of[event.tag] = kNone;
        if (event.outcome == Outcome::ok) ++n_ended;
      }
    }
    if (store.mode() == Mode::on && store.flush(0) == Begun::begun) {
      Event event;
      while (!store.idle()) store.poll({&event, 1}, 1'000'000'000);
    }
    return static_cast<f64>(n * kRecordBytes) / static_cast<f64>(clock.now_ns() - start_ns) * 1e3;
  }
  f64 write(u64 n, u64 first_id) {
    return run(n, [&](u64 i, u64 buffer_idx) {
      std::memcpy(buffer(buffer_idx).data(), &i, sizeof i);
      return store.put({.key = key(first_id + i),
                        .token_ids = tokens,
                        .payload = buffer(buffer_idx),
                        .payload_bytes = kRecordBytes,
                        .kept = PutArgs::Payload::until_written,
                        .tag = i});
    });
  }
  f64 read(u64 n, u64 first_id) {
    test::Random random(1);
    // Each once, as fio does: nothing on the way to the disk helps twice.
    std::vector<u64> order(n);
    for (u64 i = 0; i < n; ++i) {
      const u64 j = random.below(i + 1);
      order[i] = order[j];
      order[j] = i;
    }
    return run(n, [&](u64 i, u64 buffer_idx) {
      const auto found = store.find(key(first_id + order[i]));
      if (!found) std::exit(70);
      return store.read(
          {.ref = *found, .token_ids = tokens, .payload = buffer(buffer_idx), .tag = i});
    });
  }
};

int run(int argc, char** argv) {
  if (argc < 2) return 64;
  const u64 n = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1024) * kMiB / kRecordBytes;
  const u32 depth = argc > 3 ? static_cast<u32>(std::strtoul(argv[3], nullptr, 10)) : 32;
  const IoKind kind =
      argc > 4 && std::string(argv[4]) == "threads" ? IoKind::threads : IoKind::automatic;
  std::vector<std::byte> io_memory(io_backend_bytes());
  const auto io =
      io_backend_create({.kind = kind, .in_flight_max = 128, .n_threads = 16}, io_memory);
  if (!io) return 74;
  const u64 frame_bytes = kShape.record_bytes();
  const StoreLimits limits{.file_bytes = kFramesBegin + n * frame_bytes,
                           .frame_bytes = frame_bytes,
                           .ops_max = std::min(kOpsMax, 4 * depth)};
  std::vector<std::byte> memory(store_bytes(limits).value());
  SystemClock clock;
  Store store;
  const StoreOpenArgs args{.io = io->backend,
                           .clock = &clock,
                           .path = argv[1],
                           .limits = limits,
                           .memory = memory,
                           .crc = &crc32c_ways()[0]};
  const u64 begin_ns = clock.now_ns();
  if (const auto opened = store.open(args); !opened) {
    std::printf("%s\n", opened.error().hint);
    return 74;
  }
  const u64 opened_ns = clock.now_ns() - begin_ns;
  Bench bench{store, clock, bench::Mapping(depth * kRecordBytes), depth};
  const std::span<std::byte> all{reinterpret_cast<std::byte*>(bench.buffers.bytes),
                                 bench.buffers.n_bytes};
  test::Random random(1);  // zeros would be too easy for a disk that looks for them
  for (u64 i = 0; i < all.size(); i += sizeof(u64)) {
    const u64 word = random.next();
    std::memcpy(all.data() + i, &word, sizeof word);
  }
  const bool registered = io->backend->register_buffers({&all, 1});
  std::printf("%s, %u at a time, buffers %sregistered, checksums by %s, opened in %.1f ms\n",
              io->backend->name(), depth, registered ? "" : "not ", args.crc->name,
              static_cast<f64>(opened_ns) * 1e-6);
  for (u64 round = 0; round < 2; ++round) {
    const u64 n_syncs = store.stats().n_syncs;
    const f64 written = bench.write(n, round * n);
    std::printf("write %6.0f MB/s with %4llu syncs", written,
                static_cast<unsigned long long>(store.stats().n_syncs - n_syncs));
    std::printf("   random read %6.0f MB/s\n", bench.read(n, round * n));
  }
  store.close();
  io_backend_destroy(io->backend);
  return 0;
}

}  // namespace
}  // namespace tarn::store

int main(int argc, char** argv) { return tarn::store::run(argc, argv); }
