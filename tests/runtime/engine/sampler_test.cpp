// Goal    the sampler does what sampler.h says: order of its steps, cuts, penalties, logprobs,
//         refusals.
// Method  small logits whose outcome is worked out by hand; frequencies of many draws against the
//         softmax in f64, within five standard deviations.
#include "runtime/engine/sessions/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernels/act/act.h"
#include "tests/support/seed.h"

namespace tarn::engine::sampler_test {
namespace {

constexpr f32 kInfinity = std::numeric_limits<f32>::infinity();

struct Scratch {
  std::vector<kernels::Candidate> candidates = std::vector<kernels::Candidate>(64);
  std::vector<f32> original = std::vector<f32>(64);
};

Result<Sampled> sample_of(std::vector<f32> logits, const SamplerParams& params,
                          std::vector<u32> history = {}, u64 draw_idx = 0,
                          step::GeneratedMarks generated = {}) {
  static Scratch scratch;
  return sample({.logits = logits,
                 .history = history,
                 .generated = generated,
                 .params = &params,
                 .draw_idx = draw_idx,
                 .scratch = {.candidates = scratch.candidates,
                             .original = scratch.original,
                             .exp = kernels::exp_generic}});
}

u32 token_of(std::vector<f32> logits, const SamplerParams& params, std::vector<u32> history = {}) {
  const Result<Sampled> sampled = sample_of(std::move(logits), params, std::move(history));
  REQUIRE(sampled.has_value());
  return sampled->token;
}

TEST_CASE("greedy takes the best, the first of equals, and reports the model's own logprob") {
  CHECK(token_of({1, 3, 2}, {}) == 1);
  CHECK(token_of({1, 3, 3}, {}) == 1);
  SamplerParams params;
  params.n_top_logprobs = 2;
  const Result<Sampled> sampled = sample_of({0, 1, 2}, params);
  REQUIRE(sampled.has_value());
  const f64 log_sum = std::log(std::exp(0.0) + std::exp(1.0) + std::exp(2.0));
  CHECK(sampled->logprob == doctest::Approx(2 - log_sum));
  CHECK(sampled->n_top == 2);
  CHECK(sampled->top[1].token == 1);
  CHECK(sampled->top[1].logprob == doctest::Approx(1 - log_sum));
}

TEST_CASE("without a logprob the token is the same, and no logprob is said") {
  SamplerParams best, drawn, biased, penalised;
  drawn.temperature = 1.5f;
  drawn.seed = 3;
  biased.n_logit_biases = 1;
  biased.logit_biases[0] = {2, 5.0f};
  penalised.repetition_penalty = 2.0f;
  const std::vector<std::vector<f32>> rows = {
      {1, 3, 3}, {0.0f, -0.0f, -1}, {-kInfinity, 1, 0}, {4, 3, 2}};
  for (const SamplerParams& with : {best, drawn, biased, penalised}) {
    SamplerParams without = with;
    without.wants_logprob = false;
    CHECK(!takes_best(with));
    CHECK(takes_best(without) == (with.temperature == 0.0f && with.n_logit_biases == 0 &&
                                  with.repetition_penalty == 1.0f));
    for (const std::vector<f32>& row : rows) {
      const Result<Sampled> sampled = sample_of(row, without, {0});
      REQUIRE(sampled.has_value());
      CHECK(sampled->token == token_of(row, with, {0}));
      CHECK(sampled->logprob == 0.0f);
      if (!takes_best(without)) continue;
      CHECK(sample_best(kernels::summarize_logits(row.data(), row.size()))->token ==
            sampled->token);
    }
    const Result<Sampled> broken = sample_of({1, std::nanf(""), 2}, without);
    REQUIRE(!broken.has_value());
    CHECK(broken.error().status == Status::not_finite);
  }
  const std::vector<f32> nothing(3, -kInfinity);
  CHECK(!sample_best(kernels::summarize_logits(nothing.data(), nothing.size())).has_value());
  best.wants_logprob = false;
  best.n_top_logprobs = 1;
  CHECK(!validate(best, 3).has_value());
}

TEST_CASE("bias and penalties move the choice, not the reported logprob") {
  SamplerParams biased;
  biased.n_logit_biases = 2;
  biased.logit_biases[0] = {0, 10.0f};
  biased.logit_biases[1] = {1, -kInfinity};
  const Result<Sampled> sampled = sample_of({1, 3, 2}, biased);
  REQUIRE(sampled.has_value());
  CHECK(sampled->token == 0);
  CHECK(sampled->logprob ==
        doctest::Approx(1 - std::log(std::exp(1.0) + std::exp(3.0) + std::exp(2.0))));

  SamplerParams repetition;
  repetition.repetition_penalty = 2.0f;
  CHECK(token_of({1, 3, 2}, repetition, {1}) == 2);     // 3 / 2 < 2
  CHECK(token_of({-3, -2, -9}, repetition, {1}) == 0);  // -2 * 2 < -3
  repetition.penalty_last_tokens = 1;
  CHECK(token_of({1, 3, 2}, repetition, {1, 0}) == 1);  // out of the window
}

// A history with its marks.
struct Marked {
  std::vector<u32> ids;
  std::vector<u64> words = std::vector<u64>(64);
  step::GeneratedMarks marks{words};
  void add(u32 id, bool is_generated) {
    const auto i = static_cast<u32>(ids.size());
    ids.push_back(id);
    marks.set(i, i + 1, is_generated);
  }
};

TEST_CASE("frequency and presence count generated tokens alone, however far back") {
  SamplerParams frequency, presence;
  frequency.frequency_penalty = 0.6f;
  presence.presence_penalty = 1.5f;
  Marked marked;
  const auto token = [&](const SamplerParams& params) {
    const auto sampled = sample_of({1, 3, 2}, params, marked.ids, 0, marked.marks);
    REQUIRE(sampled.has_value());
    return sampled->token;
  };
  for (u32 i = 0; i < 100; ++i) marked.add(1, /*is_generated=*/false);  // a prompt of it alone
  CHECK(token(frequency) == 1);
  CHECK(token(presence) == 1);
  marked.add(1, true);
  CHECK(token(frequency) == 1);  // 3 - 0.6
  CHECK(token(presence) == 2);   // 3 - 1.5
  marked.add(1, true);
  CHECK(token(frequency) == 2);  // 3 - 1.2
  for (u32 i = 0; i < 500; ++i) marked.add(0, /*is_generated=*/false);
  CHECK(token(frequency) == 2);
  CHECK(token(presence) == 2);
  frequency.penalty_last_tokens = 1;
  CHECK(token(frequency) == 2);
  presence.presence_penalty = 0.9f;
  CHECK(token(presence) == 1);  // once, not twice
}

TEST_CASE("penalties are those of an oracle, with any history") {
  constexpr u32 kVocab = 40;
  test::Random random(7);
  for (u32 round = 0; round < 300; ++round) {
    CAPTURE(random.seed());
    SamplerParams params;
    params.repetition_penalty = random.below(2) == 0 ? 1.0f : 1.3f;
    params.frequency_penalty = random.below(3) == 0 ? 0.0f : 0.25f;
    params.presence_penalty = random.below(3) == 0 ? 0.0f : -0.5f;
    params.penalty_last_tokens = 1 + static_cast<u32>(random.below(64));
    Marked marked;
    const u64 n = random.below(300);
    for (u64 i = 0; i < n; ++i)
      marked.add(static_cast<u32>(random.below(kVocab)), random.below(2) == 0);
    std::vector<f32> logits(kVocab);
    for (f32& logit : logits) logit = static_cast<f32>(random.below(4000)) / 500.0f - 4.0f;

    std::vector<f32> want = logits;
    for (u32 token = 0; token < kVocab; ++token) {
      u32 n_generated = 0;
      bool is_in_window = false;
      for (u64 i = 0; i < n; ++i) {
        if (marked.ids[i] != token) continue;
        is_in_window |= i + params.penalty_last_tokens >= n;
        if (marked.marks.at(static_cast<u32>(i))) ++n_generated;
      }
      const f32 r = is_in_window ? params.repetition_penalty : 1.0f;
      want[token] = want[token] > 0 ? want[token] / r : want[token] * r;
      if (n_generated > 0)
        want[token] -=
            static_cast<f32>(n_generated) * params.frequency_penalty + params.presence_penalty;
    }
    const auto best = static_cast<u32>(std::ranges::max_element(want) - want.begin());
    const auto sampled = sample_of(logits, params, marked.ids, 0, marked.marks);
    REQUIRE(sampled.has_value());
    REQUIRE(sampled->token == best);
    f64 sum = 0;
    for (const f32 logit : logits) sum += std::exp(f64{logit});
    CHECK(sampled->logprob == doctest::Approx(logits[best] - std::log(sum)));
  }
}

TEST_CASE("draws follow the distribution that is left after top-k, top-p and min-p") {
  struct Case {
    const char* name;
    f32 temperature;
    u32 top_k;
    f32 top_p, min_p;
    std::vector<f64> want;  // of the tokens 0..3, not normalised
  };
  const std::vector<f32> logits = {0.0f, 1.0f, 2.0f, 3.0f};
  const auto e = [](f64 x) { return std::exp(x); };
  const Case cases[] = {
      {"all", 1.0f, 0, 1.0f, 0.0f, {1, e(1), e(2), e(3)}},
      {"hot", 2.0f, 0, 1.0f, 0.0f, {1, e(0.5), e(1), e(1.5)}},
      {"top-k", 1.0f, 2, 1.0f, 0.0f, {0, 0, e(2), e(3)}},
      {"top-p takes the one that passes the share", 1.0f, 0, 0.7f, 0.0f, {0, 0, e(2), e(3)}},
      {"top-p of a small share is greedy", 1.0f, 0, 0.1f, 0.0f, {0, 0, 0, 1}},
      {"min-p", 1.0f, 0, 1.0f, 0.1f, {0, e(1), e(2), e(3)}},
      {"top-p counts within top-k", 1.0f, 2, 0.7f, 0.0f, {0, 0, 0, 1}},
  };
  constexpr u64 kDraws = 20000;
  for (const Case& c : cases) {
    CAPTURE(c.name);
    SamplerParams params;
    params.temperature = c.temperature;
    params.top_k = c.top_k;
    params.top_p = c.top_p;
    params.min_p = c.min_p;
    params.seed = 99;
    std::vector<u64> counts(4);
    for (u64 i = 0; i < kDraws; ++i) {
      const Result<Sampled> sampled = sample_of(logits, params, {}, i);
      REQUIRE(sampled.has_value());
      ++counts[sampled->token];
    }
    f64 sum = 0;
    for (const f64 w : c.want) sum += w;
    for (size_t i = 0; i < 4; ++i) {
      CAPTURE(i);
      const f64 p = c.want[i] / sum;
      const f64 deviation = std::sqrt(p * (1 - p) * kDraws);
      CHECK(std::abs(static_cast<f64>(counts[i]) - p * kDraws) <= 5 * deviation);
    }
  }
}

TEST_CASE("logits that are no numbers end the request, not the process") {
  const f32 nan = std::numeric_limits<f32>::quiet_NaN();
  CHECK(sample_of({1, nan, 2}, {}).error().status == Status::not_finite);
  CHECK(sample_of({1, kInfinity, 2}, {}).error().status == Status::not_finite);
  CHECK(sample_of({-kInfinity, -kInfinity}, {}).error().status == Status::not_finite);
  CHECK(token_of({-kInfinity, 1}, {}) == 1);
  SamplerParams forbidding;
  forbidding.n_logit_biases = 2;
  forbidding.logit_biases[0] = {0, -kInfinity};
  forbidding.logit_biases[1] = {1, -kInfinity};
  CHECK(sample_of({1, 2}, forbidding).error().status == Status::invalid_request);
}

TEST_CASE("parameters outside their ranges are refused by name") {
  const auto refused = [](auto&& change) {
    SamplerParams params;
    change(params);
    const Result<void> result = validate(params, 10);
    return result ? std::string() : std::string(result.error().hint);
  };
  const f32 nan = std::numeric_limits<f32>::quiet_NaN();
  CHECK(refused([](SamplerParams&) {}).empty());
  CHECK(refused([](SamplerParams& p) { p.temperature = -0.1f; }).find("temperature") == 0);
  CHECK(refused([&](SamplerParams& p) { p.temperature = nan; }).find("temperature") == 0);
  CHECK(refused([](SamplerParams& p) { p.top_p = 1.5f; }).find("top_p") == 0);
  CHECK(refused([](SamplerParams& p) { p.min_p = -1.0f; }).find("min_p") == 0);
  CHECK(refused([](SamplerParams& p) { p.repetition_penalty = 0.0f; }).find("repetition") == 0);
  CHECK(refused([&](SamplerParams& p) { p.frequency_penalty = nan; }).find("frequency") == 0);
  CHECK(refused([](SamplerParams& p) { p.presence_penalty = 1e9f; }).find("presence") == 0);
  CHECK(refused([](SamplerParams& p) { p.penalty_last_tokens = 4097; }).find("penalty_last") == 0);
  CHECK_FALSE(refused([](SamplerParams& p) { p.n_logit_biases = 257; }).empty());
  CHECK_FALSE(refused([](SamplerParams& p) { p.n_top_logprobs = 21; }).empty());
  CHECK_FALSE(refused([](SamplerParams& p) {
                p.n_logit_biases = 1;
                p.logit_biases[0] = {10, 1.0f};
              }).empty());
}

}  // namespace
}  // namespace tarn::engine::sampler_test
