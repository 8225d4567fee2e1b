// One line of the benchmark: prompt and generation of given lengths at a given depth, repeated,
// with the bytes that the engine moved.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "tools/tarn-bench/kv_model.h"

namespace tarn::bench {

struct Case {
  u32 n_prompt = 0;
  u32 n_gen = 0;
  u32 n_depth = 0;
  u32 n_parallel = 1;        // parallel sequences, each with its own prompt and generation
  bool is_filled = false;    // a KvModel filled the depth, it was not computed
  u32 n_settle = 0;          // tokens at most until a selection's index is in use; not measured
  std::string name() const;  // "pp512", "tg128", "pp512+tg128", " @ d4096", " x4"
  u32 n_tokens() const { return n_parallel * (n_prompt + n_gen); }
  u32 context_tokens() const { return n_parallel * (n_depth + n_settle + n_prompt + n_gen + 2); }
};

struct Sample {
  u64 ns = 0;
  u64 weight_bytes = 0;
  u64 kv_bytes = 0;
  u64 first_ns = 0, second_ns = 0;  // until the first token, and from it to the second; 0: none
  // For rows with selection, over all workers (StepTrace).
  u64 select_ns = 0, gather_ns = 0, attend_ns = 0;
  u64 cluster_ns = 0;
  u64 n_slots_chosen = 0;
  // With a store: groups that attention found in memory or waited for, and bytes read. For rows
  // with selection: slots that may be on disk, and how many of them the cache had. For the others:
  // bytes of the sectors read, and of the slots in them.
  u64 n_hits = 0, n_waited = 0, disk_bytes_read = 0;
  u64 n_far = 0, n_cached = 0, n_requests = 0, wait_ns = 0;
  u64 gathered_bytes = 0, gathered_used_bytes = 0;
};

// The sequences of a case. Their depth is computed once and not measured; after each run they are
// truncated to it. Throws tools::Failure.
class CaseRun {
 public:
  // `on_depth`, if any: how many tokens of the depth are computed.
  CaseRun(engine::Engine& engine, const Case& c, u64 seed, KvModel* kv_model,
          const std::function<void(u32)>& on_depth = {});
  CaseRun(const CaseRun&) = delete;
  CaseRun& operator=(const CaseRun&) = delete;
  ~CaseRun();
  Sample run(u64 seed);
  // The recall (recall.h) of the first sequence.
  f64 recall();

 private:
  void settle(engine::SessionIdx session);
  void cut_back();

  engine::Engine& engine_;
  Case case_;
  std::vector<engine::SessionIdx> sessions_;
  step::KvWatch planter_{};
  std::vector<u32> n_held_;  // tokens of each session before a run, the waiting one among them
};

struct Statistics {
  f64 mean = 0;
  f64 deviation = 0;  // of the sample
};
Statistics statistics_of(const std::vector<f64>& values);

}  // namespace tarn::bench
