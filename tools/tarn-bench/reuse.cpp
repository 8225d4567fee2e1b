#include "tools/tarn-bench/reuse.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>
#include <vector>

#include "tools/support/engine_options.h"
#include "tools/support/own_engine.h"
#include "tools/support/percentile.h"
#include "tools/support/stepping.h"
#include "tools/tarn-bench/random_ids.h"
#include "tools/tarn-bench/value_list.h"

namespace tarn::bench {
namespace {

using engine::SessionIdx;
using tools::OwnEngine;
using tools::value_of;

// The passages in an order, and a question.
struct Prompt {
  std::vector<u32> ids{};
  std::vector<method::ChunkSpan> chunks{};
};

struct Row {
  std::string way;
  std::vector<f64> first_s{};
  u64 disk_bytes = 0;
  kv::Reused reused{};
  f64 median_s() const { return tools::percentile(first_s, 50); }
};

class ReuseBench {
 public:
  explicit ReuseBench(const ReuseOptions& options);
  void run();

 private:
  Prompt prompt(u32 order, u32 question) const;
  void open();
  void save_passages();
  void measure(Row& row, const Prompt& prompt, std::optional<f32> recompute);
  Row& row(const std::string& way);
  void print();

  const ReuseOptions& options_;
  Config config_{};
  u32 n_passages_ = 0, n_tokens_ = 0, n_vocab_ = 0;
  std::vector<u32> begin_;  // of every text: BOS, or nothing
  std::vector<f32> shares_;
  std::optional<OwnEngine> own_;
  std::vector<Row> rows_;
};

ReuseBench::ReuseBench(const ReuseOptions& options) : options_(options) {
  const Options& base = options.base;
  if (std::sscanf(options.passages.c_str(), "%ux%u", &n_passages_, &n_tokens_) != 2 ||
      n_passages_ == 0 || n_tokens_ == 0 || u64{n_passages_} * n_tokens_ > (1u << 20)) {
    throw std::invalid_argument("--reuse takes passages and tokens of each, as in 6x512");
  }
  for (size_t at = 0; at < options.shares.size();) {
    size_t n_read = 0;
    shares_.push_back(std::stof(options.shares.substr(at), &n_read));
    at += n_read + 1;
  }
  tools::EngineOptions engine;
  engine.budget = base.budget;
  engine.isa = base.isa;
  engine.io = base.io;
  engine.device = base.device;
  engine.config_paths = base.config_paths;
  engine.store_dir = base.store_dir;
  if (!base.kv_types.empty()) engine.kv_type = base.kv_types.front();
  if (!base.threads.empty()) engine.n_threads = parse_values(base.threads).front();
  const u64 n_prompt = u64{n_passages_} * n_tokens_ + options.n_question;
  engine.context_tokens = 3 * n_prompt + 1024;
  engine.sessions_max = 2;
  config_ = engine.config();
  if (!base.store_dir.empty()) {
    config_.store.sessions = true;
    config_.store.checkpoint_ms = 0;
  }
  open();
  n_vocab_ = own_->get().spec().n_vocab;
  if (const auto bos = own_->get().text().tokenizer().first_token()) begin_ = {*bos};
}

void ReuseBench::open() {
  own_.reset();
  own_.emplace(options_.base.models.front(), config_);
}

Prompt ReuseBench::prompt(u32 order, u32 question) const {
  Prompt prompt{.ids = begin_};
  for (u32 i = 0; i < n_passages_; ++i) {
    const auto ids = random_ids(100 + (i + order) % n_passages_, n_tokens_, n_vocab_);
    const u32 begin = static_cast<u32>(prompt.ids.size());
    prompt.ids.insert(prompt.ids.end(), ids.begin(), ids.end());
    prompt.chunks.push_back({begin, begin + n_tokens_});
  }
  const auto asked = random_ids(900 + question, options_.n_question, n_vocab_);
  prompt.ids.insert(prompt.ids.end(), asked.begin(), asked.end());
  return prompt;
}

// As `tarn ingest` does it: saved sessions of one passage each.
void ReuseBench::save_passages() {
  engine::Engine& engine = own_->get();
  for (u32 i = 0; i < n_passages_; ++i) {
    std::vector<u32> ids = begin_;
    const auto passage = random_ids(100 + i, n_tokens_, n_vocab_);
    ids.insert(ids.end(), passage.begin(), passage.end());
    const SessionIdx session = value_of(engine.create_session());
    value_of(engine.feed(session, ids));
    tools::compute_all(engine, session);
    if (!options_.base.store_dir.empty())
      value_of(engine.save(session, "passage " + std::to_string(i)));
    engine.destroy_session(session);
  }
}

void ReuseBench::measure(Row& row, const Prompt& prompt, std::optional<f32> recompute) {
  engine::Engine& engine = own_->get();
  SystemClock clock;
  const SessionIdx session = value_of(engine.create_session());
  const u64 bytes_before = engine.status().counters.disk.bytes_read;
  const u64 begin_ns = clock.now_ns();
  value_of(recompute ? engine.feed_parts(session, prompt.ids, prompt.chunks, *recompute)
                     : engine.feed(session, prompt.ids));
  value_of(engine.generate(session, {.max_tokens = 1, .ignore_end = true}));
  engine::Event event{};
  char text[256];
  u64 first_ns = 0;
  while (event.type != engine::EventType::done) {
    if (!engine.take_event(session, &event, text)) {
      tools::step(engine);
    } else if (event.type == engine::EventType::token) {
      first_ns = clock.now_ns();
    }
  }
  if (event.done.status != Status::ok)
    tools::throw_failure({.status = event.done.status, .hint = "the prompt was not answered"});
  row.first_s.push_back(static_cast<f64>(first_ns - begin_ns) * 1e-9);
  row.disk_bytes = engine.status().counters.disk.bytes_read - bytes_before;
  row.reused = event.done.reused;
  engine.destroy_session(session);
}

Row& ReuseBench::row(const std::string& way) {
  const auto at = std::ranges::find(rows_, way, &Row::way);
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
  print();
}

void ReuseBench::print() {
  const engine::Engine& engine = own_->get();
  const f64 all_s = rows_.front().median_s();
  if (options_.base.output == "md") {
    std::printf("%u passages of %u tokens, a question of %u; %s, %u threads, %s, %u runs\n\n",
                n_passages_, n_tokens_, options_.n_question, engine.status().isa,
                engine.plan().n_workers, kKvTypeNames[static_cast<u64>(config_.kv_type)],
                options_.base.repetitions);
    std::printf(
        "| KV that is there | first token, s | of all computed | reused | placed | "
        "recomputed | MB of the disk |\n|---|---|---|---|---|---|---|\n");
  }
  for (const Row& each : rows_) {
    const auto mb = static_cast<f64>(each.disk_bytes) * 1e-6;
    if (options_.base.output == "md") {
      std::printf("| %s | %.2f | %.3f | %u | %u | %u | %.0f |\n", each.way.c_str(), each.median_s(),
                  each.median_s() / all_s, each.reused.n_tokens(), each.reused.n_placed,
                  each.reused.n_recomputed, mb);
      continue;
    }
    tools::Json json;
    json.begin_object().key("test").text("reuse").key("kv").text(each.way);
    json.key("first_token_s").real(each.median_s()).key("ratio").real(each.median_s() / all_s);
    json.key("reused").number(each.reused.n_tokens()).key("placed").number(each.reused.n_placed);
    json.key("recomputed").number(each.reused.n_recomputed);
    json.key("disk_bytes").number(each.disk_bytes).end_object();
    tools::print_json(json);
  }
}

}  // namespace

void run_reuse(const ReuseOptions& options) {
  if (options.base.repetitions == 0)
    throw tools::Failure{tools::kExitUsage, "-r must be 1 at least"};
  ReuseBench(options).run();
}

}  // namespace tarn::bench
