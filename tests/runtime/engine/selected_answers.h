// The same conversation on engines whose KV lies in different places: what selection over memory
// and disk is compared by.
#pragma once

#include <doctest/doctest.h>

#include <vector>

#include "runtime/lab/probe.h"
#include "tests/support/method_rows.h"
#include "tests/support/open_engine.h"

namespace tarn::engine::test_selected {

using test::LogitsRecord;
using test::OpenEngine;
using test::SmallModel;

inline constexpr u32 kContext = 2048;
inline constexpr u32 kPage = 16;
inline constexpr u32 kPrompt = 900;
inline constexpr u64 kGroupBytes = 8192;  // of the model's KV in f16 and q8_0

// 512 keys of 900 are a sample, so that not all are clustered.
// little: no cache; ample: extents too; roomy: in two orders, planned for twice the context.
enum class Memory { whole, little, some, ample, roomy };

inline Config config_of(const char* method, Memory memory,
                        KvTypeChoice kv_type = KvTypeChoice::f16) {
  Config config = test::small_config();
  config.context_tokens = kContext;
  config.page_tokens = kPage;
  config.sessions_max = 3;
  config.batch_rows_max = 64;
  config.kv_type = kv_type;
  config.n_threads = 2;
  lab::set_method(config.select, method);
  config.select.code_bits = 2;
  config.select.n_subspaces = kv_type == KvTypeChoice::f16 ? 2 : 1;
  config.select.n_sinks = 20;
  config.select.n_local = 70;
  config.select.k = 48;
  config.select.iterations = 3;
  config.select.index_delay_tokens = 16;
  if (memory == Memory::whole) return config;
  constexpr u64 kGroups[] = {0, 42, 150, 250, 500};  // of 262, and of 518
  if (memory == Memory::roomy) config.context_tokens = 2 * kContext;
  const u64 group_bytes = kv_type == KvTypeChoice::q4_0 ? kGroupBytes / 2 : kGroupBytes;
  config.kv_memory_bytes = kGroups[static_cast<u32>(memory)] * group_bytes;
  config.store.quota_bytes = kGiB;
  test::set_text(config.store.path, "store");
  return config;
}

inline Config config_of(SelectMethod method, Memory memory,
                        KvTypeChoice kv_type = KvTypeChoice::f16) {
  return config_of(kSelectMethodNames[static_cast<u64>(method)], memory, kv_type);
}

struct Answer {
  std::vector<std::vector<u32>> tokens;
  std::vector<LogitsRecord> logits = std::vector<LogitsRecord>(3);
};

inline std::vector<u32> say(Engine& engine, SessionIdx session, u32 n) {
  REQUIRE(engine.sessions().generate(session, {.max_tokens = n, .ignore_end = true}).has_value());
  return test::read_all(engine, session).tokens;
}

// A prompt and its answer beside another's, a second turn that makes the index anew, a cut back
// behind the swap, and a fork.
inline Answer answer_of(OpenEngine& open) {
  Engine& engine = open.engine;
  Answer answer;
  const SessionIdx a = open.session_with(test::random_ids(1, kPrompt));
  const SessionIdx b = open.session_with(test::random_ids(2, 300));
  open.run();
  lab::Probe(engine).watch_logits(a, &LogitsRecord::on_logits, &answer.logits[0]);
  lab::Probe(engine).watch_logits(b, &LogitsRecord::on_logits, &answer.logits[1]);
  for (const SessionIdx session : {a, b}) {
    REQUIRE(
        engine.sessions().generate(session, {.max_tokens = 50, .ignore_end = true}).has_value());
  }
  for (const SessionIdx session : {a, b}) {
    answer.tokens.push_back(test::read_all(engine, session).tokens);
  }
  lab::Probe(engine).watch_logits(b, nullptr, nullptr);
  REQUIRE(engine.sessions().feed(b, test::random_ids(3, 400)).has_value());
  answer.tokens.push_back(say(engine, b, 40));
  REQUIRE(engine.sessions().truncate(a, kPrompt + 25).has_value());
  answer.tokens.push_back(say(engine, a, 20));
  const Result<SessionIdx> c = engine.sessions().fork(a);
  REQUIRE(c.has_value());
  lab::Probe(engine).watch_logits(*c, &LogitsRecord::on_logits, &answer.logits[2]);
  answer.tokens.push_back(say(engine, *c, 30));
  answer.tokens.push_back(say(engine, a, 30));
  return answer;
}

inline void require_same(const Answer& want, const Answer& got) {
  CHECK(want.tokens == got.tokens);
  for (u32 i = 0; i < 3; ++i) {
    CAPTURE(i);
    test::require_same_bits(want.logits[i], got.logits[i]);
  }
}

}  // namespace tarn::engine::test_selected
