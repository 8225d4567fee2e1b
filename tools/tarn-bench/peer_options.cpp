#include "tools/tarn-bench/peer_options.h"

#include <algorithm>
#include <cstdio>

#include "runtime/model/kv_type.h"
#include "tools/support/engine_options.h"
#include "tools/support/exit_code.h"

namespace tarn::bench {
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
  foreign.add_to(app, tools::ForeignOptions::Of::llama_bench, "tarn-bench: ");
  return {type_k, type_v};
}

void PeerOptions::apply(Options* options) const {
  options->kv_types = kv_types_of(types_k, types_v);
  if (foreign.wants_cpu() && !options->device) options->device = "cpu";
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
