// Shared by the kernel benches: the best time of repeated tasks on threads, huge-page memory, and
// the rate of plain reads that bandwidth-bound results are a share of.
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <vector>

#include "platform/base/types.h"

namespace tarn::bench {

inline f64 cpu_seconds() {
  timespec at{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
  return static_cast<f64>(at.tv_sec) + 1e-9 * static_cast<f64>(at.tv_nsec);
}

// Runs fn(task, thread) for all tasks on n threads, tasks handed out one by one. The time of a
// repetition is the threads' mean CPU time, so that being preempted does not count; the best
// repetition's is returned, since other work on the machine can only add. On a busy machine two
// threads may have run one after the other; rates of memory are then those of one thread, twice.
inline f64 best_seconds(u32 n_threads, u32 n_reps, u64 n_tasks,
                        const std::function<void(u64, u32)>& fn) {
  std::atomic<u32> at_start{0}, at_end{0};
  std::atomic<u64> next{0};
  std::vector<f64> seconds(n_threads * n_reps);
  const auto work = [&](u32 thread) {
    for (u32 rep = 0; rep < n_reps; ++rep) {
      at_start.fetch_add(1);
      while (at_start.load() < n_threads * (rep + 1)) std::this_thread::yield();
      const f64 start = cpu_seconds();
      for (u64 task = next.fetch_add(1); task < n_tasks; task = next.fetch_add(1)) fn(task, thread);
      seconds[rep * n_threads + thread] = cpu_seconds() - start;
      at_end.fetch_add(1);
      while (at_end.load() < n_threads * (rep + 1)) std::this_thread::yield();
      if (thread == 0) next.store(0);
    }
  };
  std::vector<std::thread> threads;
  for (u32 t = 0; t < n_threads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  f64 best = 1e30;
  for (u32 rep = 0; rep < n_reps; ++rep) {
    f64 sum = 0;
    for (u32 t = 0; t < n_threads; ++t) sum += seconds[rep * n_threads + t];
    best = std::min(best, sum / n_threads);
  }
  return best;
}

// Zeroed memory, on huge pages where the system gives them.
struct Mapping {
  u8* bytes;
  u64 n_bytes;
  explicit Mapping(u64 size) : n_bytes((size + kHuge - 1) & ~(kHuge - 1)) {
    const int access = PROT_READ | PROT_WRITE;
    base_ = mmap(nullptr, n_bytes + kHuge, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base_ == MAP_FAILED) std::abort();
    bytes = reinterpret_cast<u8*>((reinterpret_cast<u64>(base_) + kHuge - 1) & ~(kHuge - 1));
    madvise(bytes, n_bytes, MADV_HUGEPAGE);
  }
  ~Mapping() { munmap(base_, n_bytes + kHuge); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

 private:
  static constexpr u64 kHuge = 2 * kMiB;
  void* base_;
};

// GB/s of reading memory that no cache holds.
inline f64 read_rate(const Mapping& memory, u32 n_threads, u32 n_reps) {
  constexpr u64 kChunk = 256 * kKiB;
  std::atomic<u64> sink{0};
  const f64 s = best_seconds(n_threads, n_reps, memory.n_bytes / kChunk, [&](u64 task, u32) {
    const u8* chunk = memory.bytes + task * kChunk;
    u64 sum[4] = {};  // a word of each line, in four streams
    for (u64 i = 0; i < kChunk / 4; i += 64) {
      for (u32 j = 0; j < 4; ++j) {
        u64 word;
        std::memcpy(&word, chunk + j * (kChunk / 4) + i, sizeof word);
        sum[j] ^= word;
      }
    }
    sink ^= sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
  });
  return static_cast<f64>(memory.n_bytes) / s * 1e-9;
}

}  // namespace tarn::bench
