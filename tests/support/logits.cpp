#include "tests/support/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace tarn::test {
namespace {

// ln of the softmax's denominator.
f64 log_sum_exp(std::span<const f64> row) {
  const f64 peak = *std::ranges::max_element(row);
  f64 sum = 0;
  for (const f64 value : row) sum += std::exp(value - peak);
  return peak + std::log(sum);
}

f64 mean(std::span<const f64> row) {
  f64 sum = 0;
  for (const f64 value : row) sum += value;
  return sum / static_cast<f64>(row.size());
}

f64 kl(std::span<const f64> reference, std::span<const f64> other) {
  const f64 reference_lse = log_sum_exp(reference);
  const f64 other_lse = log_sum_exp(other);
  f64 sum = 0;
  for (u64 i = 0; i < reference.size(); ++i) {
    const f64 log_p = reference[i] - reference_lse;
    sum += std::exp(log_p) * (log_p - (other[i] - other_lse));
  }
  return sum;
}

f64 margin(std::span<const f64> row) {
  f64 first = -std::numeric_limits<f64>::infinity(), second = first;
  for (const f64 value : row) {
    second = std::max(second, std::min(first, value));
    first = std::max(first, value);
  }
  return first - second;
}

}  // namespace

LogitsDistance logits_distance(std::span<const f64> reference, std::span<const f32> other,
                               u64 n_vocab, f64 margin_min) {
  LogitsDistance out;
  out.n_positions = reference.size() / n_vocab;
  f64 error_squares = 0, reference_squares = 0;
  for (u64 t = 0; t < out.n_positions; ++t) {
    const auto expected = reference.subspan(t * n_vocab, n_vocab);
    const auto narrow = other.subspan(t * n_vocab, n_vocab);
    const std::vector<f64> got(narrow.begin(), narrow.end());
    if (!std::ranges::all_of(got, [](f64 value) { return std::isfinite(value); })) {
      out.kl_mean = std::numeric_limits<f64>::infinity();
      return out;
    }
    const f64 distance = kl(expected, got);
    out.kl_mean += distance;
    out.kl_max = std::max(out.kl_max, distance);
    const f64 expected_mean = mean(expected), got_mean = mean(got);
    for (u64 i = 0; i < n_vocab; ++i) {
      const f64 centred = expected[i] - expected_mean;
      const f64 error = got[i] - got_mean - centred;
      error_squares += error * error;
      reference_squares += centred * centred;
    }
    if (margin(expected) > margin_min) {
      ++out.n_decided;
      out.n_agreed += std::ranges::max_element(expected) - expected.begin() ==
                      std::ranges::max_element(got) - got.begin();
    } else {
      ++out.n_near_ties;
    }
  }
  out.kl_mean /= static_cast<f64>(out.n_positions);
  out.rms_error = std::sqrt(error_squares / static_cast<f64>(out.n_positions * n_vocab));
  out.relative_l2 = std::sqrt(error_squares / reference_squares);
  return out;
}

f64 mean_entropy(std::span<const f64> logits, u64 n_vocab) {
  f64 sum = 0;
  const u64 n_positions = logits.size() / n_vocab;
  for (u64 t = 0; t < n_positions; ++t) {
    const auto row = logits.subspan(t * n_vocab, n_vocab);
    const f64 lse = log_sum_exp(row);
    for (const f64 value : row) sum -= std::exp(value - lse) * (value - lse);
  }
  return sum / static_cast<f64>(n_positions);
}

}  // namespace tarn::test
