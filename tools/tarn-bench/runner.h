// Runs the command line's benchmark: one engine for each combination of model, KV type, slice
// length, threads and selection, and every case on it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/tarn-bench/output.h"

namespace tarn::bench {

// An empty field takes the configuration's value, or else the engine's default.
struct Options {
  std::vector<std::string> models;
  std::string prompts = "512", gens = "128", depths, ubatches, threads, parallels = "1";
  std::string batches = "2048";
  std::vector<std::string> prompt_gens;
  std::vector<std::string> kv_types, selects;
  std::string fills;  // depths that a KvModel fills in
  std::string kv_model = kKvModelNames[1];
  std::optional<f64> overlap, tail;  // planted in synthetic KV; neither: nothing
  std::string store_dir;             // empty: none
  std::string kv_memory;  // bytes of KV in memory, with a store; empty: what the budget leaves
  std::optional<u32> k;   // select.k_tokens
  std::optional<u32> context_min;         // select.context_min
  bool wants_recall = false;              // recall of selection, against oracle
  std::vector<std::string> config_paths;  // for keys that no option sets
  std::string budget = "auto";
  std::optional<std::string> isa, io, device;
  u32 repetitions = 5;
  u32 delay_s = 0;
  std::string part;  // what progress begins with: "2 of 5: "
  bool no_warmup = false, progress = false, no_bandwidth = false;
  std::string output = "md", output_err = "none";
};

// Throws tools::Failure and std::invalid_argument.
std::vector<Row> run_all(const Options& options);
// The plan for the first combination, with a context of n_tokens; reads no weights.
struct Planned {
  u64 total_bytes = 0, budget_bytes = 0;
};
Planned plan_for(const Options& options, u32 context_tokens);

}  // namespace tarn::bench
