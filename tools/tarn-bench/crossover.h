// tools/tarn-bench/crossover.h
//
// The context from which one way to read is faster than another, of both measured at some lengths.
#pragma once

#include "tools/tarn-bench/svg_plot.h"

namespace tarn::bench {

struct Crossover {
  // none: `b` was never faster in the end; always: at every length that both have; at: from
  // `n_tokens` on, by a straight line over the logarithm of the length between two of them.
  enum class Kind : u8 { unknown, none, always, at } kind = Kind::unknown;
  f64 n_tokens = 0;
};
// Points are (tokens, tokens a second). A win that a longer context loses again does not count.
// unknown: they have no length in common.
Crossover crossover(const Series& a, const Series& b);

// One sentence; empty where unknown.
std::string to_text(const Crossover& found, const std::string& a, const std::string& b);

}  // namespace tarn::bench
