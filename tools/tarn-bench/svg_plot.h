// tools/tarn-bench/svg_plot.h
//
// A line plot as one inline SVG element: no script, no font and no file beside it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "platform/base/types.h"

namespace tarn::bench {

struct Series {
  std::string name{};
  std::vector<std::pair<f64, f64>> points{};  // ascending x, finite
};

struct Plot {
  std::string title{}, x_label{}, y_label{};
  std::vector<Series> series{};
  // A level to be kept, drawn across; 0: none.
  f64 limit = 0;
  std::string limit_label{};
};

// x on a logarithmic axis with a tick at each x that occurs, y from 0. Empty series are left out;
// a plot without points says so.
std::string to_svg(const Plot& plot);

// & < > " as entities.
std::string escaped(const std::string& text);
// 131072 -> "128K"; 300 -> "300".
std::string short_count(f64 value);

}  // namespace tarn::bench
