#include "tools/support/bandwidth.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

namespace tarn::tools {
namespace {

constexpr int kPasses = 6;

// One word of each line, which is what memory delivers: adding up all words, the loop is the limit,
// and a good kernel seems faster than the memory. Four streams: one has too few reads under way on
// some CPUs.
u64 read_all(const u64* words, u64 n) {
  constexpr u64 kLineWords = 8, kStreams = 4;
  const u64 n_stream = n / kStreams / kLineWords * kLineWords;
  u64 sums[kStreams] = {};
  for (u64 i = 0; i < n_stream; i += kLineWords) {
    for (u64 s = 0; s < kStreams; ++s) sums[s] += words[s * n_stream + i];
  }
  u64 sum = 0;
  for (const u64 s : sums) sum += s;
  return sum;
}

}  // namespace

f64 measure_read_bandwidth(u32 n_threads) {
  using Clock = std::chrono::steady_clock;
  const u64 n_each = kBandwidthBufferBytes / sizeof(u64) / n_threads;
  std::vector<u64> buffer(n_each * n_threads, 1);
  std::vector<u64> sums(n_threads);
  f64 best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto begin = Clock::now();
    std::vector<std::thread> threads;
    for (u32 t = 0; t < n_threads; ++t) {
      threads.emplace_back([&, t] { sums[t] = read_all(buffer.data() + t * n_each, n_each); });
    }
    for (std::thread& thread : threads) thread.join();
    const f64 seconds = std::chrono::duration<f64>(Clock::now() - begin).count();
    best = std::max(best, static_cast<f64>(buffer.size() * sizeof(u64)) / seconds);
  }
  // The sums must be used, or the compiler removes the reads.
  for (const u64 sum : sums) best += sum == 0 ? 1.0 : 0.0;
  return best;
}

}  // namespace tarn::tools
