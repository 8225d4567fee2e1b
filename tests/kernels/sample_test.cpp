// Goal    what a sampler asks of the logits has one answer, whatever the order of ties.
// Method  references by full sort and by f64 sums over random rows with many ties and a few values
//         that are no numbers; lengths around the block of 256; k from 0 past n.
#include "kernels/sample/sample.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/act/act.h"
#include "tests/support/seed.h"

namespace tarn::kernels::sample_test {
namespace {

constexpr f32 kInf = std::numeric_limits<f32>::infinity();
constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();
constexpr u64 kLengths[] = {1, 2, 15, 16, 17, 255, 256, 257, 1000, 128256};

// Few distinct values, so that ties are everywhere.
std::vector<f32> make_logits(u64 n, test::Random& random) {
  std::vector<f32> logits(n);
  for (f32& logit : logits) logit = std::round(random.normal() * 4.0f) / 2.0f;
  return logits;
}

TEST_CASE("summarize_logits finds the first of the largest and counts what is not finite") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u64 n : kLengths) {
    CAPTURE(n);
    std::vector<f32> logits = make_logits(n, random);
    const u64 first =
        static_cast<u64>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const LogitsSummary summary = summarize_logits(logits.data(), n);
    CHECK(summary.argmax == first);
    CHECK(summary.max == logits[first]);
    CHECK(summary.n_not_finite == 0);
    if (n < 3) continue;
    const u64 broken = random.below(n);
    logits[broken] = random.below(2) == 0 ? kNan : kInf;
    logits[(broken + 1) % n] = -kInf;
    const LogitsSummary second = summarize_logits(logits.data(), n);
    CHECK(second.n_not_finite == 1);
    CHECK(std::isfinite(second.max));
    CHECK(second.argmax != broken);
    CHECK(logits[second.argmax] == second.max);
    for (u64 i = 0; i < n; ++i) REQUIRE((i == broken || logits[i] <= second.max));
  }
}

TEST_CASE("summarize_logits of a row without a finite logit") {
  for (const f32 value : {kNan, -kNan, kInf, -kInf}) {
    const std::vector<f32> logits(300, value);
    const LogitsSummary summary = summarize_logits(logits.data(), logits.size());
    CHECK(summary.argmax == 0);
    CHECK(summary.max == -kInf);
    CHECK(summary.n_not_finite == (value == -kInf ? 0 : 300));
  }
  const f32 all_negative[] = {-kInf, -3.0e38f, -kInf};
  CHECK(summarize_logits(all_negative, 3).argmax == 1);
}

void check_log_sum_exp(const std::vector<f32>& logits) {
  const f32 max = summarize_logits(logits.data(), logits.size()).max;
  f64 sum = 0.0, below = 0.0;
  for (const f32 logit : logits) {
    if (logit == -kInf) continue;
    const f64 distance = f64{max} - f64{logit}, weight = std::exp(-distance);
    sum += weight;
    below += weight * distance;
  }
  const f64 want = f64{max} + std::log(sum), bound = 0x1p-22 + 0x1p-24 * below / sum;
  REQUIRE(bound < 0x1p-20);
  CHECK(std::abs(log_sum_exp(logits.data(), logits.size(), max, exp_generic) - want) < bound);
}

TEST_CASE("log_sum_exp is within its bound of the f64 sum") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u64 n : kLengths) {
    for (const f32 spread : {0.0f, 1.0f, 30.0f}) {
      CAPTURE(n);
      CAPTURE(spread);
      std::vector<f32> logits(n);
      for (f32& logit : logits) logit = random.normal() * spread + 5.0f;
      if (n > 4) logits[n / 2] = -kInf;
      check_log_sum_exp(logits);
    }
  }
  // Equal logits, whose differences from the largest are all rounded to the same side.
  std::vector<f32> equal(262'145, -6.681386f);
  equal[7] = 2.0652795f;
  check_log_sum_exp(equal);
}

TEST_CASE("select_top is the head of a full sort") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const u64 n : kLengths) {
    const std::vector<f32> logits = make_logits(n, random);
    std::vector<Candidate> sorted(n);
    for (u64 i = 0; i < n; ++i) sorted[i] = {.logit = logits[i], .id = static_cast<u32>(i)};
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
    for (const u32 k : {0u, 1u, 2u, 3u, 40u, 1023u, 1024u}) {
      CAPTURE(n);
      CAPTURE(k);
      const u64 n_chosen = std::min<u64>(k, n);
      std::vector<Candidate> out(n_chosen + 1, Candidate{.logit = -1.0f, .id = ~0u});
      select_top(logits.data(), n, k, out.data());
      for (u64 i = 0; i < n_chosen; ++i) {
        REQUIRE(out[i].id == sorted[i].id);
        REQUIRE(out[i].logit == sorted[i].logit);
      }
      CHECK(out[n_chosen].id == ~0u);
    }
  }
}

TEST_CASE("exp and ln in f64 are within 4e-16 of the true values") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 i = 0; i < 100000; ++i) {
    const f64 x = f64{random.uniform(-700.0f, 700.0f)} / (1u << random.below(20));
    const long double want = std::exp(static_cast<long double>(x));
    REQUIRE(std::abs(exp_f64(x) / want - 1.0L) < 4e-16L);
    const f64 y = static_cast<f64>(want);
    const long double want_log = std::log(static_cast<long double>(y));
    REQUIRE(std::abs(log_f64(y) - want_log) <= 4e-16L * std::max(1.0L, std::abs(want_log)));
  }
  constexpr f64 kInf64 = std::numeric_limits<f64>::infinity();
  CHECK(exp_f64(0.0) == 1.0);
  CHECK(exp_f64(-kInf64) == 0.0);
  CHECK(exp_f64(kInf64) == kInf64);
  CHECK(exp_f64(709.8) == kInf64);
  CHECK(exp_f64(-740.0) == std::exp(-740.0));
  CHECK(std::isnan(exp_f64(std::numeric_limits<f64>::quiet_NaN())));
  CHECK(log_f64(1.0) == 0.0);
}

}  // namespace
}  // namespace tarn::kernels::sample_test
