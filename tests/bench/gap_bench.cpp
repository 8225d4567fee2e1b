// The gap between two tokens of running answers while a long prompt comes in (step/pace.h):
//
//   gap_bench --model FILE [--answers N] [--tokens N] [--gap MS] [--share PERCENT]
//
// N answers run; then a prompt of --tokens is fed. Prints the gaps of the answers before the prompt
// and beside it, and how long the prompt takes, beside answers and alone. With
// --share it comes in chunks, of whose tokens that share is computed anew. Build with
// -DTARN_BENCH=ON.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/bench/engine_bench.h"
#include "tests/bench/options.h"
#include "tools/support/percentile.h"

namespace tarn {
namespace {

using bench::now_s;
using bench::random_ids;
using engine::Engine;
using engine::SessionIdx;

constexpr u32 kPromptOfAnswer = 32, kChunkTokens = 512;

struct Options {
  std::string model;
  u32 n_answers = 4, n_tokens = 16'384, gap_ms = 250;
  u32 share = 100;  // percent of the prompt's chunks of 512 tokens; 100: it has none
};

SessionIdx begin(Engine& engine, u64 seed, u32 n_ids, u32 max_tokens, u32 share = 100) {
  const SessionIdx session = tools::value_of(engine.sessions().create());
  const auto ids = random_ids(seed, n_ids, engine.spec().n_vocab);
  std::vector<reuse::ChunkSpan> chunks;
  for (u32 at = 1; share < 100 && at + kChunkTokens < n_ids; at += kChunkTokens)
    chunks.push_back({at, at + kChunkTokens});
  tools::value_of(chunks.empty() ? engine.sessions().feed(session, ids)
                                 : engine.sessions().feed(
                                       session, ids, {chunks, static_cast<f32>(share) * 0.01f}));
  tools::value_of(engine.sessions().generate(
      session,
      {.sampler = {.wants_logprob = false}, .max_tokens = max_tokens, .ignore_end = true}));
  return session;
}

// How many tokens the session has said since the last look; ends with `is_done`.
u32 take_tokens(Engine& engine, SessionIdx session, bool* is_done) {
  std::vector<char> text(engine::EventRing::kTextBytes);
  engine::Event event;
  u32 n = 0;
  while (engine.sessions().take_event(session, &event, text)) {
    n += event.type == engine::EventType::token ? 1 : 0;
    *is_done = *is_done || event.type == engine::EventType::done;
  }
  return n;
}

void print_row(const char* name, const std::vector<f64>& gaps_s) {
  const auto ms = [&](u32 percent) { return 1e3 * tools::percentile(gaps_s, percent); };
  std::printf("| %s | %zu | %.1f | %.1f | %.1f |\n", name, gaps_s.size(), ms(50), ms(99), ms(100));
}

// Steps until `until` has ended, or n steps; returns the gaps of the answers meanwhile.
std::vector<f64> gaps_of(Engine& engine, const std::vector<SessionIdx>& answers,
                         const SessionIdx* until, u32 n_steps) {
  std::vector<f64> gaps_s, last_s(answers.size(), now_s());
  bool is_done = false;
  for (u32 step = 0; until != nullptr ? !is_done : step < n_steps; ++step) {
    engine.step();
    const f64 at_s = now_s();
    for (u64 i = 0; i < answers.size(); ++i) {
      bool has_ended = false;
      if (take_tokens(engine, answers[i], &has_ended) == 0) continue;
      gaps_s.push_back(at_s - last_s[i]);
      last_s[i] = at_s;
    }
    if (until != nullptr) (void)take_tokens(engine, *until, &is_done);
  }
  return gaps_s;
}

int run(const Options& options) {
  Config config;
  config.token_gap_ms = options.gap_ms;
  config.sessions_max = options.n_answers + 1;
  config.context_tokens = u64{2} * options.n_tokens + 4096 * u64{options.n_answers};
  config.budget_bytes = 20 * kGiB;
  config.reuse.prefix = options.share < 100;
  tools::OwnEngine own(options.model, config);
  Engine& engine = own.get();
  const f64 start_s = now_s();
  SessionIdx prompt = begin(engine, 1, options.n_tokens, 1, options.share);
  (void)gaps_of(engine, {}, &prompt, 0);
  const f64 alone_s = now_s() - start_s;
  engine.sessions().destroy(prompt);

  std::vector<SessionIdx> answers;
  for (u32 i = 0; i < options.n_answers; ++i)
    answers.push_back(begin(engine, 10 + i, kPromptOfAnswer, 0));
  (void)gaps_of(engine, answers, nullptr, 8);
  std::printf("| answers | gaps | p50, ms | p99, ms | max, ms |\n|---|---|---|---|---|\n");
  print_row("before the prompt", gaps_of(engine, answers, nullptr, 50));
  const f64 fed_s = now_s();
  prompt = begin(engine, 2, options.n_tokens, 1, options.share);
  print_row("beside it", gaps_of(engine, answers, &prompt, 0));
  std::printf("\nprompt of %u tokens: %.1f s beside %u answers, %.1f s alone; gap asked %u ms\n",
              options.n_tokens, now_s() - fed_s, options.n_answers, alone_s, options.gap_ms);
  return 0;
}

}  // namespace
}  // namespace tarn

int main(int argc, char** argv) {
  using namespace tarn;
  Options options;
  bench::parse_options(argc, argv,
                       {.texts = {{"--model", &options.model}},
                        .numbers = {{"--answers", &options.n_answers},
                                    {"--tokens", &options.n_tokens},
                                    {"--gap", &options.gap_ms},
                                    {"--share", &options.share}}});
  return bench::run_as("gap_bench", [&] { return run(options); });
}
