// Goal    of long prompts, too, codebooks find 0.95 of what converged ones find: of 32,768 rows
//         with the default's iterations, of 65,536 with the 16 of the 128K profiles.
// Method  recall_test.cpp's three kinds of rows, 7 draws each; the ratio to K-Means of all rows
//         until it stands still, from the same first centroids. One draw scatters by 0.03, so means
//         are checked; each draw's ratio, the mean and the median are printed.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>

#include "tests/runtime/select/recall_samples.h"

namespace tarn::select {
namespace {

using namespace test;

constexpr u32 kDraws = 7;
constexpr u32 kIterations[] = {3, 8, 16};

struct Case {
  u32 n_rows, n_enough;  // of the iterations that are to find 0.95
};
// Means over 7 draws, with 3, 8 and 16 iterations:
//   runs               0.97, 0.99, 0.99;    of 65,536 rows 0.98, 0.98, 0.98
//   runs, after RoPE   0.93, 0.954, 0.960;  of 65,536 rows 0.92, 0.943, 0.951
//   low rank           0.94, 0.98, 0.99;    of 65,536 rows 0.93, 0.96, 0.975
// What is missed of 0.95 is iterations: a sample twice as large found no more.
constexpr Case kCases[] = {{32768, 8}, {65536, 16}};

TEST_CASE("codebooks of long prompts find 0.95 of what converged ones find") {
  CHECK(SelectConfig{}.iterations == kIterations[1]);
  constexpr u64 seed = 31277;  // fixed: a mean of 7 draws still scatters by 0.01
  for (const Case& c : kCases) {
    for (u32 kind = 0; kind < kKinds; ++kind) {
      std::vector<f64> ratios[std::size(kIterations)];
      std::string name;
      for (u32 draw = 0; draw < kDraws; ++draw) {
        Random random(seed + draw);
        const Sample sample = sample_of(random, kind, kQueries, c.n_rows);
        const Wanted wanted = wanted_of(sample.keys, sample.queries);
        const f64 converged = recall_converged(sample, wanted);
        name = sample.name;
        for (u32 i = 0; i < std::size(kIterations); ++i) {
          ratios[i].push_back(recall_after(kIterations[i], sample, wanted) / converged);
        }
      }
      for (u32 i = 0; i < std::size(kIterations); ++i) {
        std::printf("%u rows, %s, %u iterations:", c.n_rows, name.c_str(), kIterations[i]);
        for (const f64 ratio : ratios[i]) std::printf(" %.3f", ratio);
        const f64 mean = std::accumulate(ratios[i].begin(), ratios[i].end(), 0.0) / kDraws;
        std::sort(ratios[i].begin(), ratios[i].end());
        std::printf("; mean %.3f, median %.3f\n", mean, ratios[i][kDraws / 2]);
        CAPTURE(seed);
        CAPTURE(c.n_rows);
        CAPTURE(name);
        CAPTURE(kIterations[i]);
        if (kIterations[i] >= c.n_enough) CHECK(mean >= 0.95);
      }
    }
  }
}

}  // namespace
}  // namespace tarn::select
