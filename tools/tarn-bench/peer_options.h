// llama-bench's options that have no meaning here (foreign_options.h), or another one.
#pragma once

#include <string>
#include <vector>

#include "tools/support/command_line.h"
#include "tools/support/foreign_options.h"
#include "tools/tarn-bench/runner.h"

namespace tarn::bench {

// The options of peers, as the command line gives them.
struct PeerOptions {
  tools::ForeignOptions foreign;
  std::vector<std::string> types_k, types_v;

  // Returns the options of the KV types.
  std::vector<tools::Option> add_to(const tools::Command& app);
  // Sets the options that have a meaning here. Throws tools::Failure.
  void apply(Options* options) const;
};

// llama-bench writes its long names with one dash (-pg, -ngl); our other options have two.
std::vector<std::string> with_two_dashes(int argc, char** argv);

// The types of K and V that both lists name: K and V have one type here. An empty list says
// nothing. Throws tools::Failure if they share none.
std::vector<std::string> kv_types_of(const std::vector<std::string>& types_k,
                                     const std::vector<std::string>& types_v);

}  // namespace tarn::bench
