#include "tools/tarn-bench/case.h"

#include <cmath>

#include "tools/support/exit_code.h"

namespace tarn::bench {
namespace {

using tools::value_of;

std::vector<u32> random_ids(u64 seed, u32 n, u32 n_vocab) {
  std::vector<u32> ids(n);
  u64 state = seed;
  for (u32& id : ids) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    id = static_cast<u32>((state >> 33) % n_vocab);
  }
  return ids;
}

// Steps until every generation has ended; nobody reads text here, so the rings are emptied as they
// fill.
void run_to_end(engine::Engine& engine, const std::vector<engine::SessionIdx>& sessions) {
  engine::Event event;
  char text[4096];
  size_t n_done = 0;
  while (n_done < sessions.size()) {
    engine.step();
    for (const engine::SessionIdx session : sessions) {
      while (engine.take_event(session, &event, text)) {
        n_done += event.type == engine::EventType::done ? 1 : 0;
        if (event.type == engine::EventType::done && event.done.status != Status::ok) {
          tools::throw_failure({.status = event.done.status, .hint = "the generation ended early"});
        }
      }
    }
  }
}

}  // namespace

std::string Case::name() const {
  std::string text;
  if (n_prompt > 0) text += "pp" + std::to_string(n_prompt);
  if (n_gen > 0) text += (n_prompt > 0 ? "+tg" : "tg") + std::to_string(n_gen);
  if (n_depth > 0) text += " @ d" + std::to_string(n_depth);
  if (n_parallel > 1) text += " x" + std::to_string(n_parallel);
  return text;
}

Sample run_case(engine::Engine& engine, const Case& c, u64 seed) {
  const u32 n_vocab = engine.spec().n_vocab;
  std::vector<engine::SessionIdx> sessions;
  for (u32 i = 0; i < c.n_parallel; ++i) {
    sessions.push_back(value_of(engine.create_session()));
    if (c.n_depth == 0) continue;
    // One token more: the last one waits for what follows, and it belongs to what is measured.
    value_of(engine.feed(sessions.back(), random_ids(seed + i, c.n_depth + 1, n_vocab)));
  }
  while (engine.has_work()) engine.step();

  const engine::EngineCounters before = engine.counters();
  SystemClock clock;
  const u64 begin_ns = clock.now_ns();
  for (u32 i = 0; i < c.n_parallel; ++i) {
    // At depth, one token of the prompt is waiting already; a generation alone starts from one
    // token.
    const u32 n_waiting = c.n_depth > 0 ? 1 : 0;
    const u32 n_fed = std::max(c.n_prompt, 1u);
    value_of(engine.feed(sessions[i], random_ids(seed + 100 + i, n_fed - n_waiting, n_vocab)));
    // The prompt's last row gives the first token; a generation behind a prompt decodes n_gen more.
    const u32 n_out = c.n_prompt > 0 ? c.n_gen + 1 : c.n_gen;
    value_of(engine.generate(sessions[i], {.max_tokens = n_out, .ignore_end = true}));
  }
  run_to_end(engine, sessions);
  const u64 end_ns = clock.now_ns();
  for (const engine::SessionIdx session : sessions) engine.destroy_session(session);
  const engine::EngineCounters after = engine.counters();
  return {.ns = end_ns - begin_ns,
          .weight_bytes = after.weight_bytes - before.weight_bytes,
          .kv_bytes = after.kv_bytes - before.kv_bytes};
}

Statistics statistics_of(const std::vector<f64>& values) {
  Statistics out;
  for (const f64 value : values) out.mean += value / static_cast<f64>(values.size());
  if (values.size() < 2) return out;
  f64 squares = 0;
  for (const f64 value : values) squares += (value - out.mean) * (value - out.mean);
  out.deviation = std::sqrt(squares / static_cast<f64>(values.size() - 1));
  return out;
}

}  // namespace tarn::bench
