// tarn-bench --reuse: the time to the first token of a prompt of passages, by what of its KV was
// there: nothing, all of it as a prefix, or each passage as a chunk, in memory or on a disk.
#pragma once

#include <string>

#include "tools/tarn-bench/runner.h"

namespace tarn::bench {

struct ReuseOptions {
  Options base;
  std::string passages = "6x512";  // how many, and tokens of each
  std::string shares = "0,0.05,0.1,0.15,0.18";
  u32 n_question = 32;
};

// Prints a table, or one line of JSON for each row. Throws tools::Failure and
// std::invalid_argument.
void run_reuse(const ReuseOptions& options);

}  // namespace tarn::bench
