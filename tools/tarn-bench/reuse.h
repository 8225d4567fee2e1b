// tarn-bench --reuse: the time to the first token of a prompt of passages, by the KV of it that
// was there: nothing, all of it as a prefix, or each passage as a chunk, in memory or on a disk.
#pragma once

#include <string>

#include "tools/tarn-bench/runner.h"

namespace tarn::bench {

struct ReuseOptions {
  Options base;
  std::string passages{};  // how many, and tokens of each: 6x512
  std::string shares = "0,0.05,0.1,0.15,0.18";
  u32 n_question = 32;
  // With queries: their number, the passages that there are, those whose KV has room, and how many
  // queries on end have the same passages.
  u32 n_queries = 0, n_pool = 40, n_kept = 15, n_similar = 1;
};

// Prints a table, or a list of rows as JSON. Throws tools::Failure and
// std::invalid_argument.
void run_reuse(const ReuseOptions& options);
// Queries in a row, each of passages that are drawn from a pool, in another order: how many are
// answered in a second by blending, by reuse of prefixes and by neither, with as much KV.
void run_reuse_rate(const ReuseOptions& options);

}  // namespace tarn::bench
