// Percentiles by nearest rank: the smallest value that at least `percent` % of the values do not
// exceed. The result is one of the values; the 99th of fewer than a hundred is their largest.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "platform/base/types.h"

namespace tarn::tools {

// `percent` from 1 to 100. NaN without values.
inline f64 percentile(std::vector<f64> values, u32 percent) {
  if (values.empty()) return NAN;
  const u64 rank = (values.size() * percent + 99) / 100;  // from 1
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(rank - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace tarn::tools
