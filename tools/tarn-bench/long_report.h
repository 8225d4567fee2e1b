// tarn-bench --long: measures context x budget x tier, and writes one self-contained HTML file. Its
// template is long_report.html, where a script draws the plots from the JSON in the file. Every
// plot has the commands of its figures.
#pragma once

#include <string>
#include <vector>

#include "tools/tarn-bench/runner.h"

namespace tarn::bench {

struct LongOptions {
  Options base;              // model, threads, repetitions, n_gen, prompts and depths to fill
  std::vector<u32> budgets;  // select.k_tokens of method pq
  std::string path;          // the report's file
};

// One line of the plots.
struct LongSeries {
  std::string name;
  std::string command;                           // that gives `depths`,
  std::string prompts_command{};                 // the same for `prompts`
  std::vector<Row> depths{};                     // a generation at each context
  std::vector<Row> prompts{};                    // a prompt and two tokens; for some series
  std::vector<std::pair<u32, Planned>> plans{};  // by context
  bool has_store = false;
  std::string why_not{};  // why it could not be measured
};

// Throws tools::Failure if nothing can be measured.
std::vector<LongSeries> measure_long(const LongOptions& options);
// The results as a page; `command` is the whole command line.
std::string to_html(const std::vector<LongSeries>& all, const std::string& command);
// The page's JSON.
std::string to_json(const std::vector<LongSeries>& all, const std::string& command);

}  // namespace tarn::bench
