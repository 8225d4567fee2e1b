// tools/tarn-bench/long_report.h
//
// tarn-bench --long: context x budget x tier, measured, and written as one HTML file that needs
// nothing beside it. long_report.html is its template: a script there draws the plots from the JSON
// that stands in the file. Every plot says the commands that give its figures one by one.
#pragma once

#include <string>
#include <vector>

#include "tools/tarn-bench/runner.h"

namespace tarn::bench {

struct LongOptions {
  Options base;              // model, threads, repetitions, n_gen, prompts and what to fill
  std::vector<u32> budgets;  // select.k_tokens of method pq
  std::string path;          // of the report
};

// One line of the plots.
struct LongSeries {
  std::string name;
  std::string command;                           // that gives `depths`,
  std::string prompts_command{};                 // and `prompts`
  std::vector<Row> depths{};                     // a generation at each context
  std::vector<Row> prompts{};                    // a prompt and two tokens; of some series
  std::vector<std::pair<u32, Planned>> plans{};  // of a context
  bool has_store = false;
  std::string why_not{};  // where it could not be measured
};

// Throws tools::Failure where nothing at all can be measured.
std::vector<LongSeries> measure_long(const LongOptions& options);
// From which context on each selection is faster than reading everything of the same tier.
std::vector<std::string> crossovers(const std::vector<LongSeries>& all);
// What was measured, as a page; `command` is the whole command line.
std::string to_html(const std::vector<LongSeries>& all, const std::string& command);
// The JSON in it.
std::string to_json(const std::vector<LongSeries>& all, const std::string& command);

}  // namespace tarn::bench
