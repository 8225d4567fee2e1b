#include "tools/tarn-bench/crossover.h"

#include <cmath>
#include <map>

namespace tarn::bench {

Crossover crossover(const Curve& a, const Curve& b) {
  const std::map<f64, f64> of_a(a.begin(), a.end());
  std::vector<std::pair<f64, f64>> gains;  // of b over a
  for (const auto& [n_tokens, speed] : b) {
    const auto found = of_a.find(n_tokens);
    if (found != of_a.end()) gains.emplace_back(n_tokens, speed - found->second);
  }
  if (gains.empty()) return {};
  size_t first = gains.size();  // first of the longest tail in which b wins
  while (first > 0 && gains[first - 1].second > 0) --first;
  if (first == gains.size()) return {.kind = Crossover::Kind::none};
  if (first == 0) return {.kind = Crossover::Kind::always};
  const auto [from, loss] = gains[first - 1];
  const auto [to, gain] = gains[first];
  const f64 part = -loss / (gain - loss);
  return {.kind = Crossover::Kind::at,
          .n_tokens = std::exp(std::log(from) + part * (std::log(to) - std::log(from)))};
}

std::string to_text(const Crossover& found, const std::string& a, const std::string& b) {
  switch (found.kind) {
    case Crossover::Kind::unknown:
      return "";
    case Crossover::Kind::none:
      return b + " is not faster than " + a + " at the longest of these contexts";
    case Crossover::Kind::always:
      return b + " is faster than " + a + " at all of these contexts";
    case Crossover::Kind::at:
      break;
  }
  return b + " is faster than " + a + " from about " +
         std::to_string(std::lround(found.n_tokens / 100) * 100) + " tokens on";
}

}  // namespace tarn::bench
