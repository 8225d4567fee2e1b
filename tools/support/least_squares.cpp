#include "tools/support/least_squares.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tarn::tools {
namespace {

using Matrix = std::vector<std::vector<f64>>;

// Gauss-Jordan elimination with row pivots; the last column of `a` is the right side. Unknowns
// without a pivot are 0.
std::vector<f64> solve(Matrix a) {
  constexpr f64 kNothing = 1e-12;  // for columns scaled to 1
  const size_t n = a.size();
  std::vector<f64> x(n, 0.0);
  std::vector<bool> has_pivot(n, false);
  size_t row = 0;
  for (size_t column = 0; column < n; ++column) {
    size_t best = row;
    for (size_t i = row; i < n; ++i) {
      if (std::abs(a[i][column]) > std::abs(a[best][column])) best = i;
    }
    if (std::abs(a[best][column]) < kNothing) continue;
    std::swap(a[best], a[row]);
    for (size_t i = 0; i < n; ++i) {
      const f64 factor = a[i][column] / a[row][column];
      for (size_t j = 0; i != row && j <= n; ++j) a[i][j] -= factor * a[row][j];
    }
    has_pivot[column] = true;
    ++row;
  }
  row = 0;
  for (size_t column = 0; column < n; ++column) {
    if (!has_pivot[column]) continue;
    x[column] = a[row][n] / a[row][column];
    ++row;
  }
  return x;
}

}  // namespace

std::vector<f64> least_squares(const Matrix& points, const std::vector<f64>& y) {
  const size_t n_terms = points.empty() ? 0 : points[0].size();
  std::vector<f64> scale(n_terms, 0.0);
  for (const std::vector<f64>& point : points) {
    for (size_t t = 0; t < n_terms; ++t) scale[t] += point[t] * point[t];
  }
  std::vector<size_t> terms;
  for (size_t t = 0; t < n_terms; ++t) {
    scale[t] = std::sqrt(scale[t]);
    if (scale[t] > 0) terms.push_back(t);
  }
  for (;;) {
    Matrix normal(terms.size(), std::vector<f64>(terms.size() + 1, 0.0));
    for (size_t p = 0; p < points.size(); ++p) {
      for (size_t i = 0; i < terms.size(); ++i) {
        const f64 at = points[p][terms[i]] / scale[terms[i]];
        for (size_t j = 0; j < terms.size(); ++j) {
          normal[i][j] += at * points[p][terms[j]] / scale[terms[j]];
        }
        normal[i].back() += at * y[p];
      }
    }
    const std::vector<f64> scaled = solve(std::move(normal));
    const auto least = std::min_element(scaled.begin(), scaled.end());
    if (least == scaled.end() || *least >= 0) {
      std::vector<f64> c(n_terms, 0.0);
      for (size_t i = 0; i < terms.size(); ++i) c[terms[i]] = scaled[i] / scale[terms[i]];
      return c;
    }
    terms.erase(terms.begin() + (least - scaled.begin()));
  }
}

}  // namespace tarn::tools
