#include <algorithm>
#include <cstdio>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tools/support/json.h"
#include "tools/support/own_engine.h"
#include "tools/support/percentile.h"
#include "tools/support/progress.h"
#include "tools/tarn-bench/format.h"
#include "tools/tarn-bench/passages.h"
#include "tools/tarn-bench/record.h"
#include "tools/tarn-bench/reuse.h"

namespace tarn::bench {
namespace {

struct ReuseWay {
  std::string name;
  std::optional<f32> share{};
  bool reuses = true;
};

struct Answers {
  std::vector<f64> first_s{};
  u64 n_tokens = 0, n_reused = 0, n_placed = 0, n_recomputed = 0;

  f64 all_s() const { return std::accumulate(first_s.begin(), first_s.end(), 0.0); }
  f64 per_s() const { return static_cast<f64>(first_s.size()) / all_s(); }
  f64 share(u64 n) const { return static_cast<f64>(n) / static_cast<f64>(n_tokens); }
};

// Which passages each query has, in its order.
std::vector<std::vector<u32>> draw_queries(const ReuseOptions& options, u32 n_passages) {
  std::mt19937_64 random(1);
  std::vector<u32> pool(options.n_pool);
  std::iota(pool.begin(), pool.end(), 0u);
  std::vector<std::vector<u32>> queries;
  for (u32 i = 0; i < options.n_queries; ++i) {
    const bool is_similar = i % options.n_similar != 0;
    std::vector<u32> drawn = is_similar ? queries.back() : pool;
    for (u32 k = 0; k < n_passages; ++k)
      std::swap(drawn[k], drawn[k + random() % (drawn.size() - k)]);
    drawn.resize(n_passages);
    queries.push_back(std::move(drawn));
  }
  return queries;
}

// All queries, with KV of nothing at the begin.
Answers answer_all(const ReuseOptions& options, const Config& config, const ReuseWay& way) {
  tools::Progress progress;
  tools::OwnEngine own(options.base.models.front(), config);
  const PassagesText text(own.get());
  const PassagesShape shape = parse_passages(options.passages);
  Answers result;
  u32 question = 0;
  for (const auto& passages : draw_queries(options, shape.n_passages)) {
    const PassagesPrompt prompt =
        text.prompt(passages, shape.n_tokens, question, options.n_question);
    // A tenant does not reuse what another has computed.
    const std::string tenant = way.reuses ? "" : std::to_string(question);
    const FirstToken first = time_first_token(own.get(), prompt, way.share, tenant);
    result.first_s.push_back(first.seconds);
    result.n_tokens += prompt.ids.size();
    result.n_reused += first.reused.n_tokens();
    result.n_placed += first.reused.n_placed;
    result.n_recomputed += first.reused.n_recomputed;
    ++question;
    progress.show("tarn-bench: " + way.name + ": query " + std::to_string(question) + " of " +
                  std::to_string(options.n_queries));
  }
  return result;
}

std::string table_row(const ReuseWay& way, const Answers& answers, f64 neither_s) {
  return text_of("| %s | %.3f | %.2f | %.3f | %.3f | %.3f | %.3f |\n", way.name.c_str(),
                 answers.per_s(), neither_s / answers.all_s(),
                 tools::percentile(answers.first_s, 50), answers.share(answers.n_reused),
                 answers.share(answers.n_placed), answers.share(answers.n_recomputed));
}

void write_row(const ReuseWay& way, const Answers& answers, f64 neither_s, tools::Json& json) {
  json.begin_object().key("build_commit").text(build_commit());
  json.key("test").text("reuse_rate").key("way").text(way.name);
  json.key("queries_per_s").real(answers.per_s()).key("ratio").real(neither_s / answers.all_s());
  json.key("first_token_s").real(tools::percentile(answers.first_s, 50));
  json.key("prompt_tokens").number(answers.n_tokens).key("reused").number(answers.n_reused);
  json.key("placed").number(answers.n_placed).key("recomputed").number(answers.n_recomputed);
  json.end_object();
}

}  // namespace

void run_reuse_rate(const ReuseOptions& options) {
  const PassagesShape shape = parse_passages(options.passages);
  if (options.n_pool < shape.n_passages)
    throw std::invalid_argument("--pool has fewer passages than a prompt: raise it");
  if (options.n_similar == 0) throw std::invalid_argument("--similar is 1 at least");
  // Beside what is kept: a prompt, and what a blend holds of it.
  const u64 n_prompt = shape.n_in_all() + options.n_question;
  const Config config = passages_config(
      options.base, u64{options.n_kept} * (shape.n_tokens + 64) + n_prompt + n_prompt / 2 + 1024);
  std::vector<ReuseWay> ways = {{.name = "neither", .share = {}, .reuses = false},
                                {.name = "prefix reuse"}};
  for (const f32 share : parse_shares(options.shares)) {
    char name[32];
    std::snprintf(name, sizeof name, "blending, %g", static_cast<f64>(share));
    ways.push_back({.name = name, .share = share});
  }
  std::string table = text_of(
      "%u queries of %u passages of %u tokens, of %u; room for %u, %u queries alike; build %s\n\n",
      options.n_queries, shape.n_passages, shape.n_tokens, options.n_pool, options.n_kept,
      options.n_similar, build_commit().c_str());
  table +=
      "| way | queries/s | of neither | first token, s | reused | placed | recomputed |\n"
      "|---|---|---|---|---|---|---|\n";
  f64 neither_s = 0;
  tools::Json json;
  json.begin_array();
  for (const ReuseWay& way : ways) {
    const Answers answers = answer_all(options, config, way);
    if (!way.reuses) neither_s = answers.all_s();
    table += table_row(way, answers, neither_s);
    write_row(way, answers, neither_s, json);
  }
  json.end_array();
  print_forms(options.base, {.table = table, .json_list = std::string(json.str()) + "\n"});
}

}  // namespace tarn::bench
