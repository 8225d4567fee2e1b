// tools/tarn-bench/case.h
//
// One line of the benchmark: prompt and generation of given lengths at a given depth, repeated,
// with what the engine moved meanwhile.
#pragma once

#include <string>
#include <vector>

#include "runtime/engine/engine.h"

namespace tarn::bench {

struct Case {
  u32 n_prompt = 0;
  u32 n_gen = 0;
  u32 n_depth = 0;
  u32 n_parallel = 1;        // sequences side by side; each has its own prompt and generation
  std::string name() const;  // "pp512", "tg128", "pp512+tg128", " @ d4096", " x4"
  u32 n_tokens() const { return n_parallel * (n_prompt + n_gen); }
  u32 context_tokens() const { return n_parallel * (n_depth + n_prompt + n_gen + 2); }
};

struct Sample {
  u64 ns = 0;
  u64 weight_bytes = 0;
  u64 kv_bytes = 0;
};

// Runs the case once: the depth is computed first and not measured. Throws tools::Failure.
Sample run_case(engine::Engine& engine, const Case& c, u64 seed);

struct Statistics {
  f64 mean = 0;
  f64 deviation = 0;  // of the sample
};
Statistics statistics_of(const std::vector<f64>& values);

}  // namespace tarn::bench
