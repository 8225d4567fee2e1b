#include "tools/tarn-bench/peer_options.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "runtime/model/kv_type.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"

namespace tarn::bench {
namespace {

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

// Returns what is wrong with a list whose values are all in `allowed`, or "".
std::string not_in(const std::string& list, const std::vector<std::string>& allowed) {
  for (const std::string& value : split(list)) {
    if (std::ranges::find(allowed, value) != allowed.end()) continue;
    std::string names;
    for (const std::string& name : allowed) names += (names.empty() ? "" : ", ") + name;
    return "'" + value + "' is none of " + names;
  }
  return "";
}

std::string not_numbers(const std::string& list) {
  for (const std::string& value : split(list)) {
    const std::string digits = value.starts_with('-') ? value.substr(1) : value;
    if (digits.empty() || digits.find_first_not_of("0123456789") != std::string::npos)
      return "'" + value + "' is not a number of layers";
  }
  return "";
}

// Names an option whose values are not all `meant`, what is done anyway.
void say_unused(const char* flag, const std::string& list,
                const std::vector<std::string_view>& meant, const char* why) {
  const std::vector<std::string> values = split(list);
  const bool is_meant = std::ranges::all_of(values, [&](const std::string& value) {
    return std::ranges::find(meant, std::string_view(value)) != meant.end();
  });
  if (list.empty() || is_meant) return;
  std::fprintf(stderr, "tarn-bench: %s %s changes nothing: %s\n", flag, list.c_str(), why);
}

}  // namespace

std::vector<tools::Option> PeerOptions::add_to(const tools::Command& app) {
  const auto type_k = app.add_option("--ctk,--cache-type-k", types_k,
                                     "number format of K and V " + tools::default_of("kv.type"))
                          .delimiter(',')
                          .is_member(tools::names_of(kKvTypeNames));
  const auto type_v =
      app.add_option("--ctv,--cache-type-v", types_v,
                     "the same: K and V have one format, so with --ctk those that both name are "
                     "measured")
          .delimiter(',')
          .is_member(tools::names_of(kKvTypeNames));
  app.add_option("--n-gpu-layers,--ngl", n_gpu_layers,
                 "0: --device cpu; others change nothing: a model is on the GPU as a whole or not "
                 "at all")
      .check(not_numbers);
  app.add_option("--flash-attn,--fa", flash_attention,
                 "changes nothing: attention is always computed in tiles")
      .check([](const std::string& list) {
        return not_in(list, {"0", "1", "off", "on", "auto"});
      });
  app.add_option("--mmap", mmap, "changes nothing: weights are read, not mapped")
      .check([](const std::string& list) {
        return not_in(list, {"0", "1"});
      });
  app.add_option("--split-mode,--sm", split_mode, "changes nothing: one GPU has the model")
      .check([](const std::string& list) {
        return not_in(list, {"none", "layer", "row"});
      });
  return {type_k, type_v};
}

void PeerOptions::apply(Options* options) const {
  options->kv_types = kv_types_of(types_k, types_v);
  if (n_gpu_layers == "0" && !options->device) options->device = "cpu";
  if (n_gpu_layers != "0")
    say_unused("-ngl", n_gpu_layers, {},
               "a model is on the GPU as a whole or not at all, and --device chooses");
  say_unused("-fa", flash_attention, {"1", "on", "auto"}, "attention is always computed in tiles");
  say_unused("-mmp", mmap, {"0"}, "weights are read, not mapped");
  say_unused("-sm", split_mode, {"none"}, "one GPU has the model");
}

std::vector<std::string> with_two_dashes(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  for (std::string& a : arguments) {
    for (const char* name :
         {"-pg", "-ub", "-ctk", "-ctv", "-ngl", "-fa", "-sm", "-oe", "-mmp", "-dev", "-np"}) {
      if (a == name) a = a == "-mmp" ? "--mmap" : "-" + a;
    }
  }
  return arguments;
}

std::vector<std::string> kv_types_of(const std::vector<std::string>& types_k,
                                     const std::vector<std::string>& types_v) {
  if (types_k.empty() || types_v.empty()) return types_k.empty() ? types_v : types_k;
  const auto in_both = [&](const std::string& type) {
    return std::ranges::find(types_v, type) != types_v.end();
  };
  std::vector<std::string> both;
  std::ranges::copy_if(types_k, std::back_inserter(both), in_both);
  if (both.empty()) {
    throw tools::Failure{tools::kExitUsage,
                         "K and V have one number format: give -ctv the same as -ctk"};
  }
  if (both.size() < types_k.size() * types_v.size() && types_k.size() + types_v.size() > 2) {
    std::fprintf(stderr,
                 "tarn-bench: K and V have one number format: pairs of different ones in -ctk and "
                 "-ctv are not measured\n");
  }
  return both;
}

}  // namespace tarn::bench
