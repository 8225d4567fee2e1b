// llama-bench's formats: a markdown table without constant columns, and JSON with its keys, which
// format.h turns into CSV and JSON lines. Each adds ours: bytes a token, GB/s, share of the
// bandwidth measured in this run, memory.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "tools/support/json.h"
#include "tools/tarn-bench/case.h"

namespace tarn::bench {

struct Row {
  Case test;
  // The settings of the measurement; gpu_info is empty on the CPU.
  std::string model_path, model_type, cpu_info, gpu_info, isa, kv_type, select, io, test_time;
  std::string commit;             // of the program
  bool is_kv_type_given = false;  // by an option, or by the configuration as another than f16
  u64 model_bytes = 0, n_params = 0;
  u32 n_batch = 0, n_ubatch = 0, n_threads = 0;
  u32 n_heads_select = 0;       // cache layers times KV heads
  u32 index_delay_tokens = 0;   // of a selection; 0: none
  bool is_verified = true;      // exact, or a selection with a matching record of tarn verify
  std::string kv = "computed";  // or the KvModel that filled the depth
  // The results.
  std::vector<Sample> samples;
  f64 bandwidth_bytes_per_s = 0;  // 0: not measured
  u64 plan_bytes = 0, peak_rss_bytes = 0;
  u64 driver_bytes = 0, driver_limit_bytes = 0;  // of a GPU's driver; 0 on a CPU
  bool has_store = false;
  f64 recall = NAN;  // the recall (recall.h), if it was asked for

  const char* backend() const { return gpu_info.empty() ? "CPU" : "CUDA"; }
  // A note for a line that no forward pass computed the depth, or "".
  std::string fill_note() const { return kv == "computed" ? "" : " (KV " + kv + ")"; }
  Statistics tokens_per_s() const;
  Statistics ns() const;
  // For rows with selection, over all workers; per generated token.
  struct PerToken {
    f64 slots = 0;  // slots that a KV head attends to
    f64 select_ms = 0, gather_ms = 0, attend_ms = 0;
  };
  PerToken per_token() const;
  // A row with selection whose steps read all KV: a prompt, or too short a context.
  bool reads_all() const;
  f64 mean_s(u64 Sample::*ns) const;
  f64 per_token_of(u64 Sample::*of) const;
  // Share of groups found in memory; for rows with selection, of slots on disk found in the cache.
  // NaN without a store.
  f64 hit_rate() const;
  f64 useful_share() const;  // of the bytes gathered from the store; NaN without one
  f64 bytes_per_token() const;
  f64 bytes_per_s() const;
  // NaN if it was not measured, and for prompts, where compute is the limit. Also NaN above 1: then
  // the bytes came from the CPU's caches.
  f64 bandwidth_share() const;

 private:
  f64 sum(u64 Sample::*of) const;
};

std::string to_markdown(const std::vector<Row>& rows);
std::string to_json(const std::vector<Row>& rows);

// One line of JSON.
using RowWriter = tools::JsonWriter<rapidjson::Writer<rapidjson::StringBuffer>>;
void write_row(const Row& row, RowWriter& writer);

}  // namespace tarn::bench
