// tools/tarn-bench/crossover.h
//
// The context from which one way to read is faster than another, of both measured at some lengths.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "platform/base/types.h"

namespace tarn::bench {

// (tokens, tokens a second), ascending.
using Curve = std::vector<std::pair<f64, f64>>;

struct Crossover {
  // none: `b` was never faster in the end; always: at every length that both have; at: from
  // `n_tokens` on, by a straight line over the logarithm of the length between two of them.
  enum class Kind : u8 { unknown, none, always, at } kind = Kind::unknown;
  f64 n_tokens = 0;
};
// A win that a longer context loses again does not count. unknown: they have no length in common.
Crossover crossover(const Curve& a, const Curve& b);

// One sentence; empty where unknown.
std::string to_text(const Crossover& found, const std::string& a, const std::string& b);

}  // namespace tarn::bench
