// Answers to be compared bit for bit, of sessions that read by selection from short prompts on.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/method_rows.h"
#include "tests/support/open_engine.h"

namespace tarn::engine::test_bits {

// An index from 32 rows on, 4 + 8 + 16 tokens read.
inline SelectConfig few(const char* method, u32 index_delay_tokens = 16) {
  SelectConfig select;
  lab::set_method(select, method);
  select.code_bits = 2;
  select.n_sinks = 4;
  select.n_local = 8;
  select.k = 16;
  select.iterations = 3;
  select.index_delay_tokens = index_delay_tokens;
  return select;
}

inline SelectConfig few(SelectMethod method, u32 index_delay_tokens = 16) {
  return few(kSelectMethodNames[static_cast<u64>(method)], index_delay_tokens);
}

// Sessions of these methods, four of them, of 2,048 tokens each.
inline Config selecting(const SelectConfig& select, u32 rows_max = 64, u32 n_threads = 2) {
  Config config = test::small_config();
  config.select = select;
  config.box.layer = select.cost;
  config.sessions_max = 4;
  config.context_tokens = 2048;
  config.batch_rows_max = std::max(rows_max, config.sessions_max);
  config.n_threads = n_threads;
  return config;
}

inline void begin(Engine& engine, SessionIdx session, u32 n) {
  REQUIRE(engine.sessions().generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
}

// What a generation's tokens were, with how likely each was: a step's bits in short.
struct Answer {
  std::vector<u32> tokens;
  std::vector<f32> logprobs;
  void add(const Sampled& sampled) {
    tokens.push_back(sampled.token);
    logprobs.push_back(sampled.logprob);
  }
  bool operator==(const Answer& other) const {
    return tokens == other.tokens && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(f32)) == 0;
  }
};

inline Answer read(Engine& engine, SessionIdx session) {
  Answer answer;
  for (const Sampled& sampled : test::read_all(engine, session).sampled) answer.add(sampled);
  return answer;
}

}  // namespace tarn::engine::test_bits
