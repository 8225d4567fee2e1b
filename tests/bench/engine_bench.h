// Shared by benches of a whole engine: time, prompts, a question, and how a program ends.
#pragma once

#include <chrono>
#include <cstdio>
#include <vector>

#include "tests/support/seed.h"
#include "tools/support/own_engine.h"

namespace tarn::bench {

inline f64 now_s() {
  return std::chrono::duration<f64>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline std::vector<u32> random_ids(u64 seed, u32 n, u32 n_vocab) {
  test::Random random(seed);
  std::vector<u32> ids(n);
  for (u32& id : ids) id = static_cast<u32>(random.below(n_vocab));
  return ids;
}

struct Asked {
  f64 first_s = 0, whole_s = 0;  // to the first token, to the end
  kv::Reused reused;
  engine::SessionIdx session = 0;
};

// Feeds a new session and steps until it has its answer. The session stays.
inline Asked ask(engine::Engine& engine, const std::vector<u32>& ids, u32 max_tokens,
                 const char* tenant = "") {
  Asked asked;
  asked.session = tools::value_of(engine.sessions().create({.tenant = tenant}));
  const f64 start_s = now_s();
  tools::value_of(engine.sessions().feed(asked.session, ids));
  tools::value_of(engine.sessions().generate(
      asked.session,
      {.sampler = {.wants_logprob = false}, .max_tokens = max_tokens, .ignore_end = true}));
  engine::Event event;
  std::vector<char> text(engine::EventRing::kTextBytes);
  for (bool is_done = false; !is_done;) {
    engine.step();
    while (engine.sessions().take_event(asked.session, &event, text)) {
      const bool is_first = event.type == engine::EventType::token && asked.first_s == 0;
      if (is_first) asked.first_s = now_s() - start_s;
      is_done = event.type == engine::EventType::done;
      if (is_done) asked.reused = event.done.reused;
    }
  }
  asked.whole_s = now_s() - start_s;
  return asked;
}

// The exit code of fn(). A Failure is told under this name.
template <class Fn>
int run_as(const char* name, Fn&& fn) {
  try {
    return fn();
  } catch (const tools::Failure& failure) {
    std::fprintf(stderr, "%s: %s\n", name, failure.text.c_str());
    return failure.code;
  }
}

}  // namespace tarn::bench
