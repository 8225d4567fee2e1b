// Goal    every GPU names the same best logits as kernels/sample/sample.h on the host.
// Method  rows with ties, infinities and NaN, sizes around a CTA and a chunk, more wanted than
//         there are; select_top and summarize_logits are the oracle, of each chunk and of the row.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "kernels/sample/sample.h"
#include "tests/kernels/gpu/gpus.h"
#include "tests/support/seed.h"

namespace tarn::kernels::sample_test {
namespace {

using test::DeviceArray;

constexpr f32 kInf = std::numeric_limits<f32>::infinity();

struct Case {
  const char* name;
  u32 n, k, n_rows, levels;  // levels: how many different values, so that there are ties
  f32 special;
};
constexpr Case kCases[] = {
    {"one logit", 1, 1, 1, 8, 0.0f},
    {"only the summary", 700, 0, 2, 1000, 0.0f},
    {"one short of a CTA", 255, 5, 1, 1000, 0.0f},
    {"one over a CTA, ties", 257, 40, 2, 4, 0.0f},
    {"ties all over", 1100, 20, 1, 1, 0.0f},
    {"forbidden tokens", 600, 9, 1, 100, -kInf},
    {"more than there are", 3, 6, 1, 100, 0.0f},
    {"not a number", 600, 7, 2, 100, std::numeric_limits<f32>::quiet_NaN()},
    {"infinite", 600, 7, 1, 100, kInf},
    {"a chunk", 2048, 3, 1, 5000, 0.0f},
    {"one over a chunk, ties", 2049, 2, 2, 3, 0.0f},
    {"chunks, the best anywhere", 6500, 0, 3, 100000, 0.0f},
    {"no row in use", 32, 2, 0, 100, 0.0f},
};

bool broken(f32 x) { return !(x < kInf); }

// The k best of a chunk that begins at id `begin`, as a GPU is to name them.
std::vector<GpuCandidate> best_of(std::span<const f32> chunk, u32 begin, u32 k) {
  // The host's selection has no NaN in it: leave them out, and keep the ids.
  std::vector<f32> kept;
  std::vector<u32> ids;
  for (u32 i = 0; i < chunk.size(); ++i) {
    if (broken(chunk[i])) continue;
    kept.push_back(chunk[i]);
    ids.push_back(begin + i);
  }
  std::vector<Candidate> best(std::min<u64>(k, kept.size()));
  select_top(kept.data(), kept.size(), static_cast<u32>(best.size()), best.data());
  std::vector<GpuCandidate> named;
  for (const Candidate& c : best) named.push_back({c.logit, ids[c.id]});
  named.resize(k, {0.0f, 0xffffffffu});
  return named;
}

void check_row(const Case& c, std::span<const f32> row, const GpuLogitsSummary* summaries,
               const GpuCandidate* top) {
  const u32 n_chunks = gpu_sample_chunks(c.n);
  for (u32 chunk = 0; chunk < n_chunks; ++chunk) {
    CAPTURE(chunk);
    const u32 begin = chunk * kGpuSampleChunk;
    const std::span<const f32> part =
        row.subspan(begin, std::min<u64>(kGpuSampleChunk, row.size() - begin));
    const LogitsSummary want = summarize_logits(part.data(), part.size());
    const GpuLogitsSummary& got = summaries[chunk];
    CHECK(got.argmax == (want.max == -kInf ? 0 : begin + want.argmax));
    CHECK(got.max == want.max);
    CHECK(got.n_not_finite == want.n_not_finite);
    const std::vector<GpuCandidate> best = best_of(part, begin, c.k);
    for (u32 i = 0; i < c.k; ++i) {
      CHECK(top[chunk * c.k + i].id == best[i].id);
      CHECK(top[chunk * c.k + i].logit == best[i].logit);
    }
  }
  const LogitsSummary want = summarize_logits(row.data(), row.size());
  const GpuLogitsSummary got = merge_summaries(summaries, n_chunks);
  CHECK(got.argmax == want.argmax);
  CHECK(got.max == want.max);
  CHECK(got.n_not_finite == want.n_not_finite);
}

TEST_CASE("argmax and top-k are the host's") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u32 rows_max = c.n_rows + 1, n_chunks = gpu_sample_chunks(c.n);
      const u64 stride = u64{c.n} + 3;
      std::vector<f32> logits(stride * rows_max);
      for (f32& x : logits) {
        x = static_cast<f32>(random.below(c.levels)) - static_cast<f32>(c.levels / 2);
        if (x == 0.0f && random.below(2) == 0) x = -0.0f;  // the two are equal
        if (c.special != 0.0f && random.below(3) == 0) x = c.special;
      }
      const DeviceArray<f32> device(gpu, logits);
      const DeviceArray<GpuLogitsSummary> summary(gpu, u64{rows_max} * n_chunks, {77, 77.0f, 77});
      const DeviceArray<GpuCandidate> top(gpu, u64{rows_max} * n_chunks * c.k, {77.0f, 77});
      const DeviceArray<u32> n_rows(gpu, {c.n_rows});
      gpu.table->sample({.logits = device.data(),
                         .stride = stride,
                         .n = c.n,
                         .k = c.k,
                         .summary = summary.data(),
                         .top = top.data(),
                         .n_rows = n_rows.data(),
                         .rows_max = rows_max},
                        gpu.stream);
      const auto got = summary.host();
      const auto got_top = top.host();
      for (u32 row = 0; row < c.n_rows; ++row) {
        CAPTURE(row);
        check_row(c, std::span(logits).subspan(row * stride, c.n), &got[u64{row} * n_chunks],
                  got_top.data() + u64{row} * n_chunks * c.k);
      }
      for (u64 i = u64{c.n_rows} * n_chunks; i < got.size(); ++i) CHECK(got[i].argmax == 77);
      for (u64 i = u64{c.n_rows} * n_chunks * c.k; i < got_top.size(); ++i) {
        CHECK(got_top[i].id == 77);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::sample_test
