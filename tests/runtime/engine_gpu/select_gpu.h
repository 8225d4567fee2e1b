// Engines on a fake GPU that read by selection: as short contexts as an index allows, for the
// emulator's sake.
#pragma once

#include "runtime/lab/probe.h"
#include "tests/runtime/engine_gpu/gpu_engine.h"

namespace tarn::test {

// An index as soon as there can be one, 1 + 2 + 4 tokens read.
inline SelectConfig least_select(u32 index_delay_tokens) {
  SelectConfig select;
  select.method = SelectMethod::pq;
  select.n_sinks = 1;
  select.n_local = 2;
  select.k = 4;
  select.code_bits = 1;
  select.index_delay_tokens = index_delay_tokens;
  select.context_min = 1;
  select.iterations = 1;
  return select;
}

inline Config select_config(u32 k, u32 context_tokens = 128, u32 sessions_max = 1) {
  Config config = small_config();
  config.context_tokens = context_tokens * sessions_max;
  config.page_tokens = 32;
  config.batch_rows_max = 64;
  config.sessions_max = sessions_max;
  config.select.method = SelectMethod::pq;
  config.select.n_sinks = 3;
  config.select.n_local = 6;
  config.select.k = k;
  config.select.code_bits = 1;
  config.select.index_delay_tokens = 3;
  config.select.context_min = 1;
  config.select.iterations = 2;
  return config;
}
inline constexpr u32 kPrompt = 30;  // a middle of 21 tokens, of which an index needs 16

// Steps over forced tokens; calls fn(tokens there are, trace) after each.
template <class Fn>
void generate(engine::Engine& engine, engine::SessionIdx session, std::span<const u32> tokens,
              Fn&& fn) {
  REQUIRE(lab::Probe(engine).generate(
      session, {.max_tokens = static_cast<u32>(tokens.size()), .ignore_end = true}, tokens));
  while (engine.sessions().state(session).state == engine::SessionState::generating) {
    const engine::StepTrace& trace = engine.step();
    REQUIRE(!engine.device_lost());
    engine::Event event;
    std::array<char, 256> text{};
    while (engine.sessions().take_event(session, &event, text)) {
    }
    fn(engine.sessions().state(session).sequence.n_slots(), trace);
  }
}

// A session with a prompt, whose last token is computed with what is generated first.
inline engine::SessionIdx prompted(engine::Engine& engine, const std::vector<u32>& ids) {
  const engine::SessionIdx session = *engine.sessions().create();
  REQUIRE(engine.sessions().feed(session, ids).has_value());
  while (engine.has_work()) engine.step();
  return session;
}

}  // namespace tarn::test
