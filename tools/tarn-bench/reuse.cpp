#include "tools/tarn-bench/reuse.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <vector>

#include "tools/support/json.h"
#include "tools/support/own_engine.h"
#include "tools/support/percentile.h"
#include "tools/support/progress.h"
#include "tools/support/stepping.h"
#include "tools/tarn-bench/format.h"
#include "tools/tarn-bench/passages.h"
#include "tools/tarn-bench/record.h"

namespace tarn::bench {
namespace {

using engine::SessionIdx;
using tools::OwnEngine;
using tools::value_of;

struct ReuseRow {
  std::string way;
  std::vector<f64> first_s{};
  f64 predicted_s = 0;
  u64 disk_bytes = 0, disk_wait_ns = 0;
  kv::Reused reused{};
  f64 median_s() const { return tools::percentile(first_s, 50); }
};

class ReuseBench {
 public:
  explicit ReuseBench(const ReuseOptions& options);
  void run();

 private:
  PassagesPrompt prompt(u32 order, u32 question) const;
  void open();
  void save_passages();
  void measure(ReuseRow& row, const PassagesPrompt& prompt, std::optional<f32> recompute);
  ReuseRow& row(const std::string& way);
  void print();

  const ReuseOptions& options_;
  const PassagesShape shape_;
  Config config_{};
  std::vector<f32> shares_;
  std::optional<OwnEngine> own_;
  std::optional<PassagesText> text_;
  std::vector<ReuseRow> rows_;
  tools::Progress progress_;
};

ReuseBench::ReuseBench(const ReuseOptions& options)
    : options_(options),
      shape_(parse_passages(options.passages)),
      shares_(parse_shares(options.shares)) {
  config_ = passages_config(options.base, 3 * (shape_.n_in_all() + options.n_question) + 1024);
  if (!options.base.store_dir.empty()) {
    config_.store.sessions = true;
    config_.store.checkpoint_ms = 0;
  }
  open();
  text_.emplace(own_->get());
}

void ReuseBench::open() {
  own_.reset();
  own_.emplace(options_.base.models.front(), config_);
}

PassagesPrompt ReuseBench::prompt(u32 order, u32 question) const {
  std::vector<u32> passages;
  for (u32 i = 0; i < shape_.n_passages; ++i) passages.push_back((i + order) % shape_.n_passages);
  return text_->prompt(passages, shape_.n_tokens, question, options_.n_question);
}

// As `tarn ingest` does it: saved sessions of one passage each.
void ReuseBench::save_passages() {
  engine::Engine& engine = own_->get();
  for (u32 i = 0; i < shape_.n_passages; ++i) {
    std::vector<u32> ids = text_->begin;
    const auto passage = text_->passage(i, shape_.n_tokens);
    ids.insert(ids.end(), passage.begin(), passage.end());
    const SessionIdx session = value_of(engine.sessions().create());
    value_of(engine.sessions().feed(session, ids));
    tools::compute_all(engine, session);
    if (!options_.base.store_dir.empty())
      value_of(engine.sessions().save(session, "passage " + std::to_string(i)));
    engine.sessions().destroy(session);
  }
}

void ReuseBench::measure(ReuseRow& row, const PassagesPrompt& prompt,
                         std::optional<f32> recompute) {
  progress_.show("tarn-bench: run " + std::to_string(row.first_s.size() + 1) + " of " +
                 std::to_string(options_.base.repetitions) + ", " + row.way);
  const FirstToken first = time_first_token(own_->get(), prompt, recompute);
  row.first_s.push_back(first.seconds);
  row.predicted_s = first.predicted_s;
  row.disk_bytes = first.disk_bytes;
  row.disk_wait_ns = first.disk_wait_ns;
  row.reused = first.reused;
}

ReuseRow& ReuseBench::row(const std::string& way) {
  const auto at = std::ranges::find(rows_, way, &ReuseRow::way);
  if (at != rows_.end()) return *at;
  rows_.push_back({.way = way});
  return rows_.back();
}

// A prompt's own KV would be found by the next one: each is of another question, and an engine is
// opened anew where another one's pages would be.
void ReuseBench::run() {
  const bool has_store = !options_.base.store_dir.empty();
  for (u32 i = 0; i < options_.base.repetitions; ++i) {
    open();
    measure(row("nothing there"), prompt(0, 3 * i), std::nullopt);
    measure(row("prefix in memory"), prompt(0, 3 * i + 1), std::nullopt);
    measure(row("prefix of another order"), prompt(1, 3 * i + 2), std::nullopt);
    open();
    save_passages();
    for (const f32 share : shares_) {
      char way[64];
      std::snprintf(way, sizeof way, "chunks in memory, %g", static_cast<f64>(share));
      measure(row(way), prompt(1, 3 * i), share);
    }
    for (const f32 share : shares_) {
      if (!has_store) break;
      open();  // nothing of them is in memory
      char way[64];
      std::snprintf(way, sizeof way, "chunks on the disk, %g", static_cast<f64>(share));
      measure(row(way), prompt(1, 3 * i), share);
    }
  }
  progress_.clear();
  print();
}

void ReuseBench::print() {
  const engine::Engine& engine = own_->get();
  const f64 all_s = rows_.front().median_s();
  std::string table = text_of(
      "%u passages of %u tokens, a question of %u; %s, %u threads, %s, %u runs; build %s\n\n",
      shape_.n_passages, shape_.n_tokens, options_.n_question, engine.status().isa,
      engine.plan().n_workers, kKvTypeNames[static_cast<u64>(config_.kv_type)],
      options_.base.repetitions, build_commit().c_str());
  table +=
      "| KV that is there | first token, s | predicted, s | of all computed | reused | placed | "
      "recomputed | MB of the disk | waited for it, s "
      "|\n|---|---|---|---|---|---|---|---|---|\n";
  tools::Json json;
  json.begin_array();
  for (const ReuseRow& each : rows_) {
    table += text_of("| %s | %.2f | %.2f | %.3f | %u | %u | %u | %.0f | %.2f |\n", each.way.c_str(),
                     each.median_s(), each.predicted_s, each.median_s() / all_s,
                     each.reused.n_tokens(), each.reused.n_placed, each.reused.n_recomputed,
                     static_cast<f64>(each.disk_bytes) * 1e-6,
                     static_cast<f64>(each.disk_wait_ns) * 1e-9);
    json.begin_object().key("build_commit").text(build_commit());
    json.key("test").text("reuse").key("kv").text(each.way);
    json.key("first_token_s").real(each.median_s()).key("predicted_s").real(each.predicted_s);
    json.key("ratio").real(each.median_s() / all_s);
    json.key("reused").number(each.reused.n_tokens()).key("placed").number(each.reused.n_placed);
    json.key("recomputed").number(each.reused.n_recomputed);
    json.key("disk_bytes").number(each.disk_bytes);
    json.key("disk_wait_ns").number(each.disk_wait_ns).end_object();
  }
  json.end_array();
  print_forms(options_.base, {.table = table, .json_list = std::string(json.str()) + "\n"});
}

}  // namespace

void run_reuse(const ReuseOptions& options) {
  if (options.base.repetitions == 0)
    throw tools::Failure{tools::kExitUsage, "-r must be 1 at least"};
  if (options.n_queries > 0) return run_reuse_rate(options);
  ReuseBench(options).run();
}

}  // namespace tarn::bench
