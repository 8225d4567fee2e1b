// tools/support/least_squares.h
//
// Coefficients of a sum of terms, none of them below 0: a cost is never negative, whatever noise
// says.
#pragma once

#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

// c >= 0 with least |A c - y|, where A is [points, terms] and has as many points as terms or more.
// By the normal equations, and without the most negative term as long as there is one. A term that
// the others already say gets 0.
std::vector<f64> least_squares(const std::vector<std::vector<f64>>& points,
                               const std::vector<f64>& y);

}  // namespace tarn::tools
