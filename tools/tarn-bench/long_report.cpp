#include "tools/tarn-bench/long_report.h"

#include <algorithm>
#include <locale>
#include <sstream>
#include <string_view>

#include "tools/builtin/built_in_model.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"
#include "tools/support/include_file.h"
#include "tools/tarn-bench/shell_quoted.h"
#include "tools/tarn-bench/value_list.h"

TARN_INCLUDE_FILE(tarn_long_report, TARN_LONG_REPORT);

namespace tarn::bench {
namespace {

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
  add("full, f16", "full", "f16")->has_prompts = true;
  add("full, q8_0", "full", "q8_0");
  add("full, q4_0", "full", "q4_0");
  for (const u32 k : options.budgets) {
    Wanted* pq = add(named("PQCache", k), "pq", "f16");
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
    wanted.name += ", store";
    wanted.has_prompts = wanted.options.wants_recall = false;
    wanted.options.store_dir = options.base.store_dir;
    wanted.options.kv_memory = options.base.kv_memory;
    all.push_back(wanted);
  }
  return all;
}

// The command of one series: only the options that its figures need.
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
  LongSeries out{.name = wanted.name,
                 .command = command_of(at_depth),
                 .has_store = !wanted.options.store_dir.empty()};
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

}  // namespace

std::vector<LongSeries> measure_long(const LongOptions& options) {
  tools::EngineOptions configured;
  configured.config_paths = options.base.config_paths;
  if (configured.config().store.path[0] != '\0') {
    throw tools::Failure{tools::kExitUsage,
                         "--long compares memory with a store and takes its folder from --store: "
                         "use a configuration without store.path"};
  }
  std::vector<LongSeries> all;
  std::vector<Wanted> wanted = wanted_of(options);
  for (Wanted& each : wanted) {
    each.options.part = each.name + " (" + std::to_string(all.size() + 1) + " of " +
                        std::to_string(wanted.size()) + "): ";
    all.push_back(measure(each));
  }
  const bool has_any =
      std::any_of(all.begin(), all.end(), [](const LongSeries& s) { return !s.depths.empty(); });
  if (!has_any) throw tools::Failure{tools::kExitRefused, all.front().why_not};
  return all;
}

std::string to_json(const std::vector<LongSeries>& all, const std::string& command) {
  rapidjson::StringBuffer buffer;
  RowWriter w(buffer);
  const auto text = [&w](const char* key, const std::string& value) {
    w.Key(key);
    w.String(value.c_str(), static_cast<rapidjson::SizeType>(value.size()));
  };
  const auto number = [&w](const char* key, u64 value) {
    w.Key(key);
    w.Uint64(value);
  };
  const auto list = [&w](const char* key, const auto& values, const auto& write) {
    w.Key(key);
    w.StartArray();
    for (const auto& value : values) write(value);
    w.EndArray();
  };
  const auto row = [&w](const Row& r) { write_row(r, w); };
  w.StartObject();
  text("command", command);
  list("series", all, [&](const LongSeries& series) {
    w.StartObject();
    text("name", series.name);
    text("command", series.command);
    text("prompts_command", series.prompts_command);
    text("why_not", series.why_not);
    w.Key("has_store");
    w.Bool(series.has_store);
    number("index_delay_tokens",
           series.prompts.empty() ? 0 : series.prompts.front().index_delay_tokens);
    list("plans", series.plans, [&](const std::pair<u32, Planned>& plan) {
      w.StartObject();
      number("n_tokens", plan.first);
      number("total_bytes", plan.second.total_bytes);
      number("budget_bytes", plan.second.budget_bytes);
      w.EndObject();
    });
    list("rows", series.depths, row);
    list("prompts", series.prompts, row);
    w.EndObject();
  });
  w.EndObject();
  return std::string(buffer.GetString(), buffer.GetSize());
}

std::string to_html(const std::vector<LongSeries>& all, const std::string& command) {
  const std::string_view page{tarn_long_report_begin, tarn_long_report_end};
  constexpr std::string_view kPlace = ">MEASURED<";
  const size_t at = page.find(kPlace) + 1;
  std::string out(page.substr(0, at));
  for (const char c : to_json(all, command)) {  // it must not contain "</script>"
    c == '<' ? out += "\\u003c" : out += c;
  }
  return out.append(page.substr(at + kPlace.size() - 2));
}

}  // namespace tarn::bench
