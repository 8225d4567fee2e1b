#include "tools/support/foreign_options.h"

#include <algorithm>
#include <cstdio>
#include <vector>

namespace tarn::tools {
namespace {

struct ForeignOption {
  const char* names;
  const char* flag;  // as llama.cpp's users write it
  const char* help;
  const char* why;                   // it changes nothing
  std::vector<std::string> allowed;  // empty: numbers of layers
  std::vector<std::string> meant;    // what is done anyway
  bool of_bench_alone;
};

const std::vector<ForeignOption>& foreign_options() {
  static const std::vector<ForeignOption> kOptions = {
      {"--n-gpu-layers,--ngl",
       "-ngl",
       "0: --device cpu; others change nothing: a model is on the GPU as a whole or not at all",
       "a model is on the GPU as a whole or not at all, and --device chooses",
       {},
       {"0"},
       false},
      {"--flash-attn,--fa",
       "-fa",
       "changes nothing: attention is always computed in tiles",
       "attention is always computed in tiles",
       {"0", "1", "off", "on", "auto"},
       {"1", "on", "auto"},
       true},
      {"--mmap",
       "-mmp",
       "changes nothing: weights are read, not mapped",
       "weights are read, not mapped",
       {"0", "1"},
       {"0"},
       true},
      {"--split-mode,--sm",
       "-sm",
       "changes nothing: one GPU has the model",
       "one GPU has the model",
       {"none", "layer", "row"},
       {"none"},
       true},
  };
  return kOptions;
}

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> values(1);
  for (const char c : list) {
    if (c == ',') {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  return values;
}

bool is_in(const std::vector<std::string>& all, const std::string& value) {
  return std::ranges::find(all, value) != all.end();
}

bool is_number_of_layers(const std::string& value) {
  if (value == "auto" || value == "all") return true;
  const std::string digits = value.starts_with('-') ? value.substr(1) : value;
  return !digits.empty() && digits.find_first_not_of("0123456789") == std::string::npos;
}

// Returns what is wrong with a list of values, or "".
std::string why_not(const ForeignOption& option, const std::string& list) {
  for (const std::string& value : split(list)) {
    if (option.allowed.empty() && !is_number_of_layers(value)) {
      return "'" + value + "' is not a number of layers";
    }
    if (option.allowed.empty() || is_in(option.allowed, value)) continue;
    std::string names;
    for (const std::string& name : option.allowed) names += (names.empty() ? "" : ", ") + name;
    return "'" + value + "' is none of " + names;
  }
  return "";
}

void say_unused(const ForeignOption& option, const std::string& list, const std::string& speaker) {
  const std::vector<std::string> values = split(list);
  const auto is_meant = [&](const std::string& value) { return is_in(option.meant, value); };
  if (std::ranges::all_of(values, is_meant)) return;
  std::fprintf(stderr, "%s%s %s changes nothing: %s\n", speaker.c_str(), option.flag, list.c_str(),
               option.why);
}

}  // namespace

void ForeignOptions::add_to(const Command& command, Of of, const std::string& speaker) {
  for (const ForeignOption& option : foreign_options()) {
    if (option.of_bench_alone && of != Of::llama_bench) continue;
    const bool is_layers = option.allowed.empty();
    command
        .add_option_function<std::string>(
            option.names,
            [this, &option, is_layers, speaker](const std::string& list) {
              if (is_layers && list == "0") wants_cpu_ = true;
              say_unused(option, list, speaker);
            },
            option.help)
        .check([&option](const std::string& list) { return why_not(option, list); });
  }
}

}  // namespace tarn::tools
