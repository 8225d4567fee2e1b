// Fits the coefficients of a sum of terms, none below 0, because a cost is never negative.
#pragma once

#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

// c >= 0 with least |A c - y|, where A is [points, terms] and has as many points as terms or more.
// Solves the normal equations, and drops the most negative term while there is one. A term that
// depends on the others gets 0.
std::vector<f64> least_squares(const std::vector<std::vector<f64>>& points,
                               const std::vector<f64>& y);

}  // namespace tarn::tools
