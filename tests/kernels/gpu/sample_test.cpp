// Goal    every GPU names the same best logits as kernels/sample/sample.h on the host.
// Method  rows with ties, infinities and NaN, sizes around a CTA, more wanted than there are;
//         select_top and summarize_logits are the oracle.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "kernels/sample/sample.h"
#include "tests/kernels/gpu/gpus.h"
#include "tests/support/seed.h"

namespace tarn::kernels {
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
    {"one short of a CTA", 511, 5, 1, 1000, 0.0f},
    {"one over a CTA, ties", 513, 40, 2, 4, 0.0f},
    {"ties all over", 1100, 20, 1, 1, 0.0f},
    {"forbidden tokens", 600, 9, 1, 100, -kInf},
    {"more than there are", 3, 6, 1, 100, 0.0f},
    {"not a number", 600, 7, 2, 100, std::numeric_limits<f32>::quiet_NaN()},
    {"infinite", 600, 7, 1, 100, kInf},
    {"no row in use", 32, 2, 0, 100, 0.0f},
};

bool broken(f32 x) { return !(x < kInf); }

TEST_CASE("argmax and top-k are the host's") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u32 rows_max = c.n_rows + 1;
      const u64 stride = u64{c.n} + 3;
      std::vector<f32> logits(stride * rows_max);
      for (f32& x : logits) {
        x = static_cast<f32>(random.below(c.levels)) - static_cast<f32>(c.levels / 2);
        if (c.special != 0.0f && random.below(3) == 0) x = c.special;
      }
      const DeviceArray<f32> device(gpu, logits);
      const DeviceArray<GpuLogitsSummary> summary(gpu, rows_max, {77, 77.0f, 77});
      const DeviceArray<GpuCandidate> top(gpu, u64{rows_max} * c.k, {77.0f, 77});
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
      CHECK(got[c.n_rows].argmax == 77);
      for (u32 row = 0; row < c.n_rows; ++row) {
        std::vector<f32> values(&logits[row * stride], &logits[row * stride] + c.n);
        const LogitsSummary want = summarize_logits(values.data(), c.n);
        CHECK(got[row].argmax == want.argmax);
        CHECK(got[row].max == want.max);
        CHECK(got[row].n_not_finite == want.n_not_finite);
        // The host's selection has no NaN in it: leave them out, and keep the ids.
        std::vector<f32> kept;
        std::vector<u32> ids;
        for (u32 i = 0; i < c.n; ++i) {
          if (broken(values[i])) continue;
          kept.push_back(values[i]);
          ids.push_back(i);
        }
        const u32 n_best = static_cast<u32>(std::min<u64>(c.k, kept.size()));
        std::vector<Candidate> best(n_best);
        select_top(kept.data(), kept.size(), n_best, best.data());
        for (u32 i = 0; i < c.k; ++i) {
          const GpuCandidate& candidate = got_top[u64{row} * c.k + i];
          CHECK(candidate.id == (i < n_best ? ids[best[i].id] : 0xffffffffu));
          if (i < n_best) CHECK(candidate.logit == best[i].logit);
        }
      }
      for (u64 i = u64{c.n_rows} * c.k; i < got_top.size(); ++i) CHECK(got_top[i].id == 77);
    }
  }
}

}  // namespace
}  // namespace tarn::kernels
