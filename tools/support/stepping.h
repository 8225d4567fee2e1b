// Steps for a program that drives its own engine; they convert silent failures to a Failure. A lost
// GPU ends no generation with an event, and a session that stops a prefill is only idle. Without
// these functions a program waits for ever, or takes a part for the whole.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "runtime/engine/engine.h"
#include "tools/support/exit_code.h"

namespace tarn::tools {

inline void check_gpu(const engine::Engine& engine) {
  if (!engine.device_lost()) return;
  throw Failure{kExitGpuLost, "the GPU is lost: start the program again to use it again"};
}

// Makes one step. Throws Failure if the GPU is lost.
inline const engine::StepTrace& step(engine::Engine& engine) {
  const engine::StepTrace& trace = engine.step();
  check_gpu(engine);
  return trace;
}

// Throws Failure unless the session has computed its last input, or still does.
inline void check_computed(const engine::Engine& engine, engine::SessionIdx session) {
  check_gpu(engine);
  const Status status = engine.sessions().state(session).last_error.status;
  if (status == Status::ok) return;
  throw Failure{exit_code(status), std::string("the text was not read to its end: ") +
                                       status_name(status) + "; the warning above says why"};
}

// Steps while there is work, and calls `after` after each step. Throws Failure if the session has
// not computed its whole input at the end.
template <class After>
void compute_all(engine::Engine& engine, engine::SessionIdx session, After&& after) {
  check_gpu(engine);
  while (engine.has_work()) {
    step(engine);
    after();
  }
  check_computed(engine, session);
}
inline void compute_all(engine::Engine& engine, engine::SessionIdx session) {
  compute_all(engine, session, [] {});
}

// Takes the session's events, and calls on_event(event, text) for each; only a text event has text.
// Returns whether the generation has ended. Throws Failure if it ended with an error.
template <class OnEvent>
bool drain(engine::Engine& engine, engine::SessionIdx session, OnEvent&& on_event) {
  engine::Event event;
  std::array<char, engine::EventRing::kTextBytes> text;
  bool has_ended = false;
  while (engine.sessions().take_event(session, &event, text)) {
    const bool has_text = event.type == engine::EventType::text;
    on_event(event, std::string_view(text.data(), has_text ? event.text_bytes : 0));
    if (event.type != engine::EventType::done) continue;
    if (event.done.status != Status::ok) throw_ended_early(event.done.status);
    has_ended = true;
  }
  return has_ended;
}
inline bool drain(engine::Engine& engine, engine::SessionIdx session) {
  return drain(engine, session, [](const engine::Event&, std::string_view) {});
}

}  // namespace tarn::tools
