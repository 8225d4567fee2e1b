#include "tools/tarn-bench/crossover.h"

#include <algorithm>
#include <cmath>

namespace tarn::bench {
namespace {

// The gain of `b` over `a` at a length.
struct Gain {
  f64 n_tokens = 0, gain = 0;
  f64 noise = 0;
  bool wins() const { return gain > noise; }
  bool loses() const { return gain < -noise; }
};

Gain gain_of(const CurvePoint& a, const CurvePoint& b) {
  const auto variance = [](const CurvePoint& p) {  // of the mean
    return p.speed.deviation * p.speed.deviation / static_cast<f64>(p.n_runs);
  };
  return {.n_tokens = b.n_tokens,
          .gain = b.speed.mean - a.speed.mean,
          .noise = std::max(3 * std::sqrt(variance(a) + variance(b)),
                            kDriftShare * std::max(a.speed.mean, b.speed.mean))};
}

std::string rounded(f64 n_tokens) {
  return std::to_string(std::lround(n_tokens / 100) * 100) + " tokens on";
}

}  // namespace

Crossover crossover(const Curve& a, const Curve& b) {
  using Kind = Crossover::Kind;
  std::vector<Gain> gains;
  for (const CurvePoint& point : b) {
    const auto found = std::ranges::find(a, point.n_tokens, &CurvePoint::n_tokens);
    if (found == a.end()) continue;
    if (std::min(found->n_runs, point.n_runs) < kRunsLeast) return {.kind = Kind::too_few};
    gains.push_back(gain_of(*found, point));
  }
  if (gains.empty()) return {};
  size_t first = gains.size();  // first of the longest tail in which b wins
  while (first > 0 && gains[first - 1].wins()) --first;
  if (first == 0) return {.kind = Kind::always};
  const Gain& before = gains[first - 1];
  if (first == gains.size()) return {.kind = before.loses() ? Kind::slower : Kind::alike};
  if (!before.loses()) return {.kind = Kind::from, .n_tokens = gains[first].n_tokens};
  const f64 part = -before.gain / (gains[first].gain - before.gain);
  const f64 from = std::log(before.n_tokens), to = std::log(gains[first].n_tokens);
  return {.kind = Kind::at, .n_tokens = std::exp(from + part * (to - from))};
}

std::string to_text(const Crossover& found, const std::string& a, const std::string& b) {
  switch (found.kind) {
    case Crossover::Kind::unknown:
      return "";
    case Crossover::Kind::too_few:
      return b + " against " + a + ": no verdict, so few runs do not show their noise (-r " +
             std::to_string(kRunsLeast) + " or more)";
    case Crossover::Kind::alike:
      return b + " against " + a +
             ": no verdict, at the longest of these contexts the difference is inside the noise";
    case Crossover::Kind::slower:
      return b + " is slower than " + a + " at the longest of these contexts";
    case Crossover::Kind::always:
      return b + " is faster than " + a + " at all of these contexts";
    case Crossover::Kind::at:
      return b + " is faster than " + a + " from about " + rounded(found.n_tokens);
    case Crossover::Kind::from:
      break;
  }
  return b + " is faster than " + a + " from " + std::to_string(std::lround(found.n_tokens)) +
         " tokens on; at the context before, the difference is inside the noise";
}

}  // namespace tarn::bench
