// Goal    what is planted is there: from step to step the share of the k best tokens that stays is
//         the one that was asked for, and weights fall with their rank to the power asked for.
// Method  planted keys and queries of one head of an 8B's shape, exact scores, 24 steps; the
//         overlap's mean against what was asked, the slope of log weight over log rank.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/rope/rope.h"
#include "tools/support/exit_code.h"
#include "tools/tarn-bench/planting.h"

namespace tarn::bench::planting_test {
namespace {

constexpr u32 kTokens = 8192, kChosen = 512, kSteps = 24, kDim = 128;

model::ModelSpec spec_of_8b() {
  model::ModelSpec spec{};
  spec.n_heads = 4;
  spec.n_kv_heads = 1;
  spec.head_dim = kDim;
  spec.n_rot = kDim;
  spec.n_cache_layers = 1;
  return spec;
}

struct Found {
  f64 overlap = 0, slope = 0;
};

Found found(const PlantingArgs& args) {
  const model::ModelSpec spec = spec_of_8b();
  std::vector<f64> inv_freq(kDim / 2);
  kernels::rope_frequencies(500000.0, 1.0, kDim, nullptr, inv_freq.data());
  Planting planting(args, 7);
  planting.begin(spec, inv_freq.data(), kTokens);
  std::vector<f32> keys(u64{kTokens} * kDim), q(u64{4} * kDim);
  for (u32 t = 0; t < kTokens; ++t) planting.plant_keys(0, t, &keys[u64{t} * kDim]);

  Found out;
  std::vector<u32> last, order(kTokens), both;
  std::vector<f32> scores(kTokens);
  for (u32 step = 0; step < kSteps; ++step) {
    planting.plant_queries({.n = 1, .q = {q.data(), q.size()}});
    CHECK(std::equal(q.begin(), q.begin() + kDim, q.begin() + kDim));  // the group wants the same
    for (u32 t = 0; t < kTokens; ++t) {
      scores[t] = std::inner_product(q.begin(), q.begin() + kDim, &keys[u64{t} * kDim], 0.0f) /
                  std::sqrt(static_cast<f32>(kDim));
    }
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(), [&](u32 a, u32 b) { return scores[a] > scores[b]; });
    out.slope -= (f64{scores[order[15]]} - f64{scores[order[kChosen - 1]]}) /
                 (std::log(16.0) - std::log(f64{kChosen})) / kSteps;
    std::vector<u32> best(order.begin(), order.begin() + kChosen);
    std::sort(best.begin(), best.end());
    both.clear();
    std::set_intersection(last.begin(), last.end(), best.begin(), best.end(),
                          std::back_inserter(both));
    if (step > 0) out.overlap += static_cast<f64>(both.size()) / kChosen / (kSteps - 1);
    last = best;
  }
  return out;
}

TEST_CASE("the best tokens stay and fall as asked") {
  for (const f64 overlap : {0.3, 0.6, 0.9}) {
    for (const f64 tail : {0.8, 1.5}) {
      const Found is = found({overlap, tail, f64{kChosen} / kTokens});
      MESSAGE("asked " << overlap << " and " << tail << ": " << is.overlap << " and " << is.slope);
      CHECK(is.overlap == doctest::Approx(overlap).epsilon(0.1));
      CHECK(is.slope == doctest::Approx(tail).epsilon(0.15));
    }
  }
}

TEST_CASE("a context over which RoPE turns every dim is refused") {
  const std::vector<f64> inv_freq(kDim / 2, 0.1);
  Planting planting({}, 7);
  CHECK_THROWS_AS(planting.begin(spec_of_8b(), inv_freq.data(), kTokens), tools::Failure);
}

}  // namespace
}  // namespace tarn::bench::planting_test
