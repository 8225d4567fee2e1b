#include "tools/tarn-bench/long_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <locale>
#include <sstream>

#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/tarn-bench/crossover.h"
#include "tools/tarn-bench/shell_quoted.h"
#include "tools/tarn-bench/value_list.h"

namespace tarn::bench {
namespace {

std::string figure(f64 value, int decimals) {
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return std::isfinite(value) ? text : "";
}

// Of the series' names: what selection is held against, selection by codes, and the disk's tier.
constexpr const char* kEverything = "full, f16";
constexpr const char* kOfCodes = "PQCache";
constexpr const char* kOnDisk = ", store";

// ---- What is measured -----------------------------------------------------------------------

struct Wanted {
  std::string name;
  Options options;
  bool has_prompts = false;
};

std::vector<Wanted> wanted_of(const LongOptions& options) {
  std::vector<Wanted> all;
  const auto add = [&](const std::string& name, const std::string& select, const char* kv_type) {
    Wanted wanted{.name = name, .options = options.base};
    wanted.options.selects = {select};
    wanted.options.kv_types = {kv_type};
    wanted.options.wants_recall = select.ends_with("pq");
    wanted.options.store_dir.clear();
    wanted.options.kv_memory.clear();
    if (select != "full") wanted.options.context_min = 1;
    all.push_back(wanted);
    return &all.back();
  };
  const auto named = [](const char* what, u32 k) {
    return std::string(what) + ", k " + std::to_string(k);
  };
  add(kEverything, "full", "f16")->has_prompts = true;
  add("full, q8_0", "full", "q8_0");
  add("full, q4_0", "full", "q4_0");
  for (const u32 k : options.budgets) {
    Wanted* pq = add(named(kOfCodes, k), "pq", "f16");
    pq->options.k = k;
    pq->has_prompts = k == options.budgets.front();
  }
  add(named("window", options.budgets.front()), "window", "f16")->options.k =
      options.budgets.front();
  for (const std::string& select : tools::compared_select_names(options.base.selects)) {
    if (select != "full") add(select, select, "f16")->options.k.reset();
  }
  if (options.base.store_dir.empty()) return all;
  const std::vector<Wanted> in_memory = all;
  for (Wanted wanted : in_memory) {
    wanted.name += kOnDisk;
    wanted.has_prompts = wanted.options.wants_recall = false;
    wanted.options.store_dir = options.base.store_dir;
    wanted.options.kv_memory = options.base.kv_memory;
    all.push_back(wanted);
  }
  return all;
}

// Of one series: what its figures follow from, and nothing that another has.
std::string command_of(const Options& o) {
  std::string text = "tarn-bench";
  const auto give = [&](const char* flag, const std::string& value) {
    if (!value.empty()) text += std::string(" ") + flag + " " + shell_quoted(value);
  };
  const auto give_other = [&](const char* flag, const std::string& value, const char* standard) {
    if (value != standard) give(flag, value);
  };
  const auto give_number = [&](const char* flag, const auto& value) {
    std::ostringstream digits;
    digits.imbue(std::locale::classic());
    if (value) digits << *value;
    give(flag, digits.str());
  };
  const std::string& model = o.models.front();
  if (tools::model_name(model) == model) give("-m", model);  // not the built-in one
  give("-p", o.prompts);
  give("-n", o.gens);
  for (const std::string& pair : o.prompt_gens) give("--pg", pair);
  give("--fill-kv", o.fills);
  if (!o.fills.empty()) give("--kv-model", o.kv_model);
  give_number("--overlap", o.overlap);
  give_number("--tail", o.tail);
  give("--select", o.selects.front());
  give("--ctk", o.kv_types.front());
  give_number("--k", o.k);
  give_number("--context-min", o.context_min);
  for (const std::string& path : o.config_paths) give("--config", path);
  give("--store", o.store_dir);
  give("--kv-memory", o.kv_memory);
  give_other("--np", o.parallels, "1");
  give("--ub", o.ubatches);
  give("-t", o.threads);
  give("--isa", o.isa.value_or(""));
  give("--io", o.io.value_or(""));
  give_other("--budget", o.budget, "auto");
  give("--device", o.device.value_or(""));
  give("-r", std::to_string(o.repetitions));
  if (o.delay_s > 0) give("--delay", std::to_string(o.delay_s));
  if (o.no_warmup) text += " --no-warmup";
  if (o.no_bandwidth) text += " --no-bandwidth";
  if (o.wants_recall) text += " --recall";
  return text + " -o json";
}

LongSeries measure(const Wanted& wanted) {
  Options at_depth = wanted.options;
  at_depth.prompts = "0";
  at_depth.prompt_gens.clear();
  at_depth.depths.clear();
  LongSeries out{.name = wanted.name, .command = command_of(at_depth)};
  try {
    for (const u32 n_tokens : parse_values(wanted.options.fills)) {
      out.plans.emplace_back(n_tokens, plan_for(wanted.options, n_tokens));
    }
    out.depths = run_all(at_depth);
    if (!wanted.has_prompts) return out;
    Options prompts = wanted.options;
    prompts.fills.clear();
    prompts.prompts = prompts.gens = "0";
    prompts.prompt_gens.clear();
    prompts.repetitions = 1;
    prompts.depths.clear();
    prompts.overlap = prompts.tail = std::nullopt;
    prompts.wants_recall = false;
    for (const u32 n : parse_values(wanted.options.prompts)) {
      if (n > 0) prompts.prompt_gens.push_back(std::to_string(n) + ",1");
    }
    if (prompts.prompt_gens.empty()) return out;
    out.prompts_command = command_of(prompts);
    out.prompts = run_all(prompts);
  } catch (const tools::Failure& failure) {
    out.why_not = failure.text;
  }
  return out;
}

// ---- The page -------------------------------------------------------------------------------

using Figure = std::function<f64(const Row&)>;

struct Shown {
  const char* title;
  const char* y_label;
  const char* says;  // of the caption
  Figure value;
  int decimals;
};

// What is plotted against the context; also the columns of the table.
std::vector<Shown> shown() {
  return {
      {"Decoding speed", "tokens/s", "Tokens a second behind a context of that length.",
       [](const Row& r) { return r.tokens_per_s().mean; }, 2},
      {"KV that a token's attention reads", "MiB a token", "Bytes per step, of K and V alone.",
       [](const Row& r) { return r.per_token_of(&Sample::kv_bytes) / static_cast<f64>(kMiB); }, 1},
      {"Bytes from the store", "MiB a token", "Read from the disk, per step.",
       [](const Row& r) {
         return r.has_store ? r.per_token_of(&Sample::disk_bytes_read) / static_cast<f64>(kMiB)
                            : NAN;
       },
       1},
      {"Useful bytes per byte gathered from the store", "share",
       "K and V of chosen tokens, of the sectors that were read for them.",
       [](const Row& r) { return r.useful_share(); }, 3},
      {"Hit rate", "share",
       "With a store: groups of KV that attention to everything need not wait for; with selection, "
       "chosen tokens that the cache has, of those that may be on disk. How much of its choice a "
       "step shares with the one before is what --overlap plants; without it, what this model's "
       "queries happen to share.",
       [](const Row& r) { return r.hit_rate(); }, 3},
      {"Recall against oracle", "share of oracle's k",
       "Tokens that the codes choose among those that exact scores choose, for the queries of one "
       "token, the mean over heads of several layers. Chance has k of the middle's tokens; keys "
       "and "
       "queries are this model's and this KV model's, not a text's.",
       [](const Row& r) { return r.recall; }, 3},
  };
}

Series series_of(const LongSeries& from, const Figure& value) {
  Series out{.name = from.name};
  for (const Row& row : from.depths) {
    if (std::isfinite(value(row))) out.points.emplace_back(row.test.n_depth, value(row));
  }
  return out;
}

std::string caption(const std::string& says, const std::vector<LongSeries>& all, const Plot& plot,
                    std::string LongSeries::*command = &LongSeries::command) {
  std::string out = "<figcaption>" + escaped(says);
  for (const LongSeries& series : all) {
    const bool is_there = std::any_of(plot.series.begin(), plot.series.end(), [&](const Series& s) {
      return s.name == series.name && !s.points.empty();
    });
    if (is_there) {
      out += "<br>" + escaped(series.name) + ": <code>" + escaped(series.*command) + "</code>";
    }
  }
  return out + "</figcaption>\n";
}

std::string framed(const Plot& plot, const std::string& under) {
  return "<figure>\n" + to_svg(plot) + under + "</figure>\n";
}

std::string memory_plot(const std::vector<LongSeries>& all) {
  u64 bytes_max = 0, budget_bytes = 0;
  for (const LongSeries& series : all) {
    for (const auto& [n_tokens, planned] : series.plans) {
      bytes_max = std::max(bytes_max, planned.total_bytes);
      budget_bytes = planned.budget_bytes;
    }
  }
  const bool is_small = bytes_max < kGiB;
  const f64 unit = static_cast<f64>(is_small ? kMiB : kGiB);
  const bool shows_budget = budget_bytes <= 3 * bytes_max;
  Plot plot{.title = "Memory that the plan reserves",
            .x_label = "context, tokens",
            .y_label = is_small ? "MiB" : "GiB",
            .limit = shows_budget ? static_cast<f64>(budget_bytes) / unit : 0,
            .limit_label = "budget"};
  for (const LongSeries& series : all) {
    Series line{.name = series.name};
    for (const auto& [n_tokens, planned] : series.plans) {
      line.points.emplace_back(n_tokens, static_cast<f64>(planned.total_bytes) / unit);
    }
    plot.series.push_back(line);
  }
  const std::string says = "All of it: weights, KV, indexes, scratch. The budget is " +
                           tools::format_bytes(budget_bytes) +
                           (shows_budget ? "." : ", beyond this plot.");
  return framed(plot, caption(says, all, plot));
}

// What a second token waits for.
std::string clustering(const std::vector<LongSeries>& all) {
  for (const LongSeries& series : all) {
    if (series.prompts.empty() || series.prompts.front().swap_tokens == 0) continue;
    const u32 n = series.prompts.front().swap_tokens;
    return " " + series.name + ": select.swap_tokens is " + std::to_string(n) +
           (n == 1 ? ", so the second token waits for all of the clustering."
                   : ", so the clustering is spread over as many tokens, the index serves behind "
                     "them, and the second token waits for its share alone.");
  }
  return "";
}

std::string first_tokens_plot(const std::vector<LongSeries>& all, bool is_second) {
  Plot plot{.title = is_second ? "Time from the first token to the second (TT2T)"
                               : "Time to the first token (TTFT)",
            .x_label = "prompt, tokens",
            .y_label = "seconds"};
  for (const LongSeries& series : all) {
    Series line{.name = series.name};
    for (const Row& row : series.prompts) {
      line.points.emplace_back(row.test.n_prompt,
                               row.mean_s(is_second ? &Sample::second_ns : &Sample::first_ns));
    }
    plot.series.push_back(line);
  }
  const std::string says = "A real prefill, run once." + (is_second ? clustering(all) : "");
  return framed(plot, caption(says, all, plot, &LongSeries::prompts_command));
}

std::string facts(const Row& r) {
  return "<p>" + escaped(r.model_type) + ", " + tools::format_bytes(r.model_bytes) + "; " +
         escaped(r.cpu_info) + ", " + escaped(r.isa) + ", " + std::to_string(r.n_threads) +
         " threads; measured " + escaped(r.test_time) +
         ". Reading by selection is approximate; the table says where a record of tarn verify "
         "vouches for it.</p>\n<p><b>KV: " +
         escaped(r.kv) +
         "</b>: no forward pass computed the contexts of these figures (--fill-kv); prompts of the "
         "first two tokens' times are real.</p>\n";
}

std::string table(const std::vector<LongSeries>& all) {
  std::string out = "<table><tr><th>series<th>context<th>kv<th>verified";
  for (const Shown& column : shown()) {
    out += "<th>" + escaped(column.title) + "<br>" + escaped(column.y_label);
  }
  out += "<th>choice, gather, attention<br>ms a token, all workers</tr>\n";
  for (const LongSeries& series : all) {
    for (const Row& row : series.depths) {
      out += "<tr><td>" + escaped(series.name) + "<td>" + short_count(row.test.n_depth) + "<td>" +
             escaped(row.kv) + "<td>" + (row.is_verified ? "true" : "false");
      for (const Shown& column : shown())
        out += "<td>" + figure(column.value(row), column.decimals);
      const Row::PerToken t = row.per_token();
      out += "<td>";
      if (t.slots > 0) {
        out +=
            figure(t.select_ms, 1) + ", " + figure(t.gather_ms, 1) + ", " + figure(t.attend_ms, 1);
      }
      out += "</tr>\n";
    }
  }
  return out + "</table>\n";
}

constexpr const char* kHead =
    "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
    "<title>tarn-bench --long</title>\n<style>\n"
    "body{font-family:sans-serif;max-width:900px;margin:2em auto;padding:0 1em;color:#222}\n"
    "figure{margin:2em 0}svg{width:100%;height:auto;border:1px solid #ddd}\n"
    "figcaption{font-size:.85em;color:#444;margin-top:.4em}code{overflow-wrap:anywhere}\n"
    "table{border-collapse:collapse;font-size:.8em;display:block;overflow-x:auto}"
    "td,th{border:1px solid #ddd;padding:.3em .5em;text-align:right}\n"
    "</style></head><body>\n";

}  // namespace

std::vector<LongSeries> measure_long(const LongOptions& options) {
  tools::EngineOptions configured;
  configured.config_paths = options.base.config_paths;
  if (configured.config().store.path[0] != '\0') {
    throw tools::Failure{tools::kExitUsage,
                         "--long holds memory against a store and takes its folder from --store: "
                         "give it a configuration without store.path"};
  }
  std::vector<LongSeries> all;
  for (const Wanted& wanted : wanted_of(options)) all.push_back(measure(wanted));
  const bool has_any =
      std::any_of(all.begin(), all.end(), [](const LongSeries& s) { return !s.depths.empty(); });
  if (!has_any) throw tools::Failure{tools::kExitRefused, all.front().why_not};
  return all;
}

std::vector<std::string> crossovers(const std::vector<LongSeries>& all) {
  const auto speed = [](const Row& r) { return r.tokens_per_s().mean; };
  std::vector<std::string> lines;
  for (const LongSeries& series : all) {
    if (!series.name.starts_with(kOfCodes)) continue;
    const std::string name =
        std::string(kEverything) + (series.name.ends_with(kOnDisk) ? kOnDisk : "");
    const auto everything =
        std::find_if(all.begin(), all.end(), [&](const LongSeries& s) { return s.name == name; });
    const Crossover found = crossover(series_of(*everything, speed), series_of(series, speed));
    if (found.kind != Crossover::Kind::unknown) {
      lines.push_back(to_text(found, everything->name, series.name) +
                      series.depths.front().fill_note());
    }
  }
  return lines;
}

std::string to_html(const std::vector<LongSeries>& all, const std::string& command) {
  std::string out = kHead;
  out += "<h1>Long contexts</h1>\n<p><code>" + escaped(command) + "</code></p>\n";
  const auto measured =
      std::find_if(all.begin(), all.end(), [](const LongSeries& s) { return !s.depths.empty(); });
  if (measured != all.end()) out += facts(measured->depths.front());
  const std::vector<Shown> columns = shown();
  for (const Shown& one : columns) {
    Plot plot{.title = one.title, .x_label = "context, tokens", .y_label = one.y_label};
    for (const LongSeries& series : all) plot.series.push_back(series_of(series, one.value));
    const bool is_empty = std::all_of(plot.series.begin(), plot.series.end(),
                                      [](const Series& s) { return s.points.empty(); });
    if (is_empty) continue;
    out += framed(plot, caption(one.says, all, plot));
    if (&one != &columns.front()) continue;
    for (const std::string& line : crossovers(all)) out += "<p>" + escaped(line) + ".</p>\n";
  }
  out += memory_plot(all);
  const bool has_prompts =
      std::any_of(all.begin(), all.end(), [](const LongSeries& s) { return !s.prompts.empty(); });
  if (has_prompts) {
    out += first_tokens_plot(all, false);
    out += first_tokens_plot(all, true);
  }
  out += "<h2>All figures</h2>\n" + table(all);
  for (const LongSeries& series : all) {
    if (!series.why_not.empty()) {
      out += "<p>Not measured: " + escaped(series.name) + ": " + escaped(series.why_not) + "</p>\n";
    }
  }
  return out + "</body></html>\n";
}

}  // namespace tarn::bench
