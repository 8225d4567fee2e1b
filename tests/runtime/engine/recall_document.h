// tests/runtime/engine/recall_document.h: reads a recall document once and asks on forks.
#pragma once

#include <functional>

#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "tests/support/open_engine.h"
#include "tools/synth/recall.h"

namespace tarn::test {

struct RecallCase {
  u32 n_tokens = 1024;
  size_t n_questions_max = 100;
  KvTypeChoice kv_type = KvTypeChoice::f16;
  const char* weights = "f16";
  u32 drop_first = 0;  // tokens of the document that the model does not get to see
  SelectConfig select{};
  synth::RecallKeys keys = synth::RecallKeys::still;
  // Behind the last answer, if any.
  std::function<void(const engine::Engine&, engine::SessionIdx)> on_answer{};
};

// The share of questions whose answer is exact, token for token.
inline f64 share_recalled(const RecallCase& c) {
  const TempFile file("recall.gguf");
  synth::recall_write(*synth::parse_quant(c.weights), file.path(), c.keys);
  const u64 seed = seed_from_environment();
  const u32 n_answer_words = c.keys == synth::RecallKeys::turning ? 3 : 2;
  const synth::RecallDocument document =
      synth::recall_document(seed, c.n_tokens, n_answer_words, c.keys);
  Config config = small_config();
  config.context_tokens = c.n_tokens + 64;
  config.sessions_max = 2;
  config.n_threads = 2;
  config.kv_type = c.kv_type;
  config.select = c.select;
  OpenEngine open(file.path(), config);
  const std::vector<u32> seen(document.ids.begin() + static_cast<std::ptrdiff_t>(c.drop_first),
                              document.ids.end());
  const engine::SessionIdx reader = open.session_with(seen);
  open.run();
  const size_t n = std::min(c.n_questions_max, document.questions.size());
  size_t n_right = 0;
  for (size_t i = 0; i < n; ++i) {
    const synth::RecallQuestion& question =
        document.questions[i * (document.questions.size() - 1) / std::max<size_t>(n - 1, 1)];
    const Result<engine::SessionIdx> fork = open.engine.sessions().fork(reader);
    REQUIRE(fork.has_value());
    const u32 key[] = {question.key_id};
    REQUIRE(open.engine.sessions().feed(*fork, key).has_value());
    REQUIRE(open.engine.sessions()
                .generate(*fork, {.max_tokens = static_cast<u32>(question.answer_ids.size()),
                                  .ignore_end = true})
                .has_value());
    n_right += read_all(open.engine, *fork).tokens == question.answer_ids ? 1u : 0u;
    if (i + 1 == n && c.on_answer) c.on_answer(open.engine, *fork);
    open.engine.sessions().destroy(*fork);
  }
  return static_cast<f64>(n_right) / static_cast<f64>(n);
}

inline void check_recall(const RecallCase& c) {
  CAPTURE(c.n_tokens);
  CAPTURE(c.weights);
  CHECK(share_recalled(c) == 1.0);
}

}  // namespace tarn::test
