// The context from which one way to read is faster than another, from measurements at some lengths.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "platform/base/types.h"

namespace tarn::bench {

// (tokens, tokens a second), ascending.
using Curve = std::vector<std::pair<f64, f64>>;

struct Crossover {
  // none: `b` is not faster at the end; always: at every common length; at: from `n_tokens` on,
  // interpolated linearly over the logarithm of the length.
  enum class Kind : u8 { unknown, none, always, at } kind = Kind::unknown;
  f64 n_tokens = 0;
};
// A win that a longer context loses again does not count. unknown: there is no common length.
Crossover crossover(const Curve& a, const Curve& b);

// One sentence; empty if unknown.
std::string to_text(const Crossover& found, const std::string& a, const std::string& b);

}  // namespace tarn::bench
