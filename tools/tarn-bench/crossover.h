// The context from which one way to read is faster than another, from measurements at some lengths.
// A difference inside the noise of the runs decides nothing.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"
#include "tools/tarn-bench/case.h"

namespace tarn::bench {

// Tokens a second at a length, of so many runs.
struct CurvePoint {
  f64 n_tokens = 0;
  Statistics speed{};
  u64 n_runs = 0;
};
using Curve = std::vector<CurvePoint>;  // ascending

// Fewer runs do not show their noise.
inline constexpr u64 kRunsLeast = 3;
// Two means differ if they are further apart than three standard errors of their difference, and
// than this share of the larger: engines run one after another, and the machine drifts.
inline constexpr f64 kDriftShare = 0.02;

struct Crossover {
  // too_few: a point has fewer than kRunsLeast runs; alike: at the longest common length the
  // difference is noise; slower: there `b` is slower; always: faster at every common length; at:
  // from `n_tokens` on, interpolated over the logarithm of the length, where it is slower before;
  // from: faster at `n_tokens` and beyond, where the difference before is noise.
  enum class Kind : u8 { unknown, too_few, alike, slower, always, at, from } kind = Kind::unknown;
  f64 n_tokens = 0;
};
// A win that a longer context loses again does not count. unknown: there is no common length.
Crossover crossover(const Curve& a, const Curve& b);

// One sentence; empty if unknown.
std::string to_text(const Crossover& found, const std::string& a, const std::string& b);

}  // namespace tarn::bench
