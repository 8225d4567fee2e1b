#include "tools/tarn-bench/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace tarn::bench {
namespace {

constexpr f64 kWidth = 860, kHeight = 340;
constexpr f64 kLeft = 70, kRight = 620, kTop = 34, kBottom = 284;  // of the axes' box
constexpr f64 kLegendX = 640, kLegendLine = 22;
constexpr size_t kTicksY = 5;

// Okabe and Ito's colours, which the colour-blind tell apart; dashes and marks help in print.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#56b4e9", "#b8860b", "#000000"};
constexpr const char* kDashes[] = {"", "7 3", "2 3", "9 3 2 3"};

std::string number(f64 value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

// Three significant digits, without an exponent.
std::string tick(f64 value) {
  const int decimals = value == 0 || value >= 100 ? 0 : value >= 10 ? 1 : value >= 1 ? 2 : 3;
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string text_at(f64 x, f64 y, const char* anchor, const std::string& text,
                    const char* more = "") {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\" " +
         more + ">" + escaped(text) + "</text>\n";
}

std::string line(f64 x0, f64 y0, f64 x1, f64 y1, const std::string& style) {
  return "<line x1=\"" + number(x0) + "\" y1=\"" + number(y0) + "\" x2=\"" + number(x1) +
         "\" y2=\"" + number(y1) + "\" " + style + "/>\n";
}

// 1, 2, 2.5, 4 or 5 times a power of ten, at least as large.
f64 round_step(f64 step) {
  const f64 power = std::pow(10.0, std::floor(std::log10(step)));
  for (const f64 factor : {1.0, 2.0, 2.5, 4.0, 5.0}) {
    if (step <= factor * power * (1 + 1e-9)) return factor * power;
  }
  return 10 * power;
}

struct Axes {
  f64 x_min = 0, x_max = 0, y_step = 1;
  f64 y_max() const { return y_step * static_cast<f64>(kTicksY); }
  f64 x(f64 value) const {
    if (x_max <= x_min) return (kLeft + kRight) / 2;
    const f64 share = std::log2(value / x_min) / std::log2(x_max / x_min);
    return kLeft + 16 + share * (kRight - kLeft - 32);
  }
  f64 y(f64 value) const { return kBottom - value / y_max() * (kBottom - kTop); }
};

Axes axes_of(const Plot& plot, std::set<f64>& xs) {
  f64 y_max = plot.limit;
  for (const Series& series : plot.series) {
    for (const auto& [x, y] : series.points) {
      xs.insert(x);
      y_max = std::max(y_max, y);
    }
  }
  return {.x_min = xs.empty() ? 1 : *xs.begin(),
          .x_max = xs.empty() ? 1 : *xs.rbegin(),
          .y_step = round_step(y_max > 0 ? y_max / static_cast<f64>(kTicksY) : 1)};
}

std::string frame(const Plot& plot, const Axes& axes, const std::set<f64>& xs) {
  std::string out = text_at(kLeft, 20, "start", plot.title, "font-weight=\"bold\"");
  for (size_t i = 0; i <= kTicksY; ++i) {
    const f64 value = axes.y_step * static_cast<f64>(i);
    out += line(kLeft, axes.y(value), kRight, axes.y(value),
                i == 0 ? "stroke=\"#333\"" : "stroke=\"#ddd\"");
    out += text_at(kLeft - 6, axes.y(value) + 4, "end", tick(value));
  }
  f64 last_label = -1e9;
  for (const f64 x : xs) {
    out += line(axes.x(x), kBottom, axes.x(x), kBottom + 5, "stroke=\"#333\"");
    if (axes.x(x) - last_label < 36) continue;  // labels would touch
    last_label = axes.x(x);
    out += text_at(axes.x(x), kBottom + 20, "middle", short_count(x));
  }
  out += text_at((kLeft + kRight) / 2, kBottom + 42, "middle", plot.x_label);
  const std::string turned = "transform=\"rotate(-90 16 " + number((kTop + kBottom) / 2) + ")\"";
  return out + text_at(16, (kTop + kBottom) / 2, "middle", plot.y_label, turned.c_str());
}

// `idx` tells colour and dashes, the same in every plot of the same series; `row` is the legend's.
std::string curve(const Series& series, const Axes& axes, size_t idx, size_t row) {
  const std::string colour = kColours[idx % std::size(kColours)];
  const std::string dash = kDashes[idx % std::size(kDashes)];
  const std::string style = "stroke=\"" + colour + "\" stroke-width=\"2\" fill=\"none\"" +
                            (dash.empty() ? "" : " stroke-dasharray=\"" + dash + "\"");
  std::string points, marks;
  for (const auto& [x, y] : series.points) {
    const std::string cx = number(axes.x(x)), cy = number(axes.y(y));
    points += cx + "," + cy + " ";
    marks += "<circle cx=\"" + cx + "\" cy=\"" + cy + "\" r=\"3.5\" fill=\"" + colour +
             "\"><title>" + escaped(series.name) + ", " + short_count(x) + ": " + tick(y) +
             "</title></circle>\n";
  }
  const f64 y = kTop + 12 + kLegendLine * static_cast<f64>(row);
  return "<polyline points=\"" + points + "\" " + style + "/>\n" + marks +
         line(kLegendX, y - 4, kLegendX + 28, y - 4, style) +
         text_at(kLegendX + 36, y, "start", series.name);
}

}  // namespace

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string short_count(f64 value) {
  const u64 n = static_cast<u64>(value);
  return n >= 1024 && n % 1024 == 0 ? std::to_string(n / 1024) + "K" : std::to_string(n);
}

std::string to_svg(const Plot& plot) {
  std::set<f64> xs;
  const Axes axes = axes_of(plot, xs);
  std::string out = "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
                    "\" xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" "
                    "font-family=\"sans-serif\" font-size=\"13\">\n<title>" +
                    escaped(plot.title) + "</title>\n";
  out += "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += frame(plot, axes, xs);
  size_t n_shown = 0;
  for (size_t i = 0; i < plot.series.size(); ++i) {
    if (!plot.series[i].points.empty()) out += curve(plot.series[i], axes, i, n_shown++);
  }
  if (n_shown == 0) {
    out += text_at((kLeft + kRight) / 2, (kTop + kBottom) / 2, "middle", "nothing was measured");
  }
  if (plot.limit > 0) {
    out += line(kLeft, axes.y(plot.limit), kRight, axes.y(plot.limit),
                "stroke=\"#c00\" stroke-width=\"1.5\" stroke-dasharray=\"5 4\"");
    out += text_at(kRight - 4, axes.y(plot.limit) - 5, "end", plot.limit_label, "fill=\"#c00\"");
  }
  return out + "</svg>\n";
}

}  // namespace tarn::bench
