// A host with one event loop: waits for the engine's descriptor, takes what there is.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>

#include "runtime/api/tarn.h"

namespace tarn::test {

inline bool is_readable(tarn_engine* engine, int timeout_ms = 0) {
  pollfd ready{.fd = tarn_engine_fd(engine), .events = POLLIN, .revents = 0};
  return poll(&ready, 1, timeout_ms) == 1 && (ready.revents & POLLIN) != 0;
}

constexpr int kLoopMs = 300'000;  // of a hang; an emulator reads a prompt for a minute

// The status of a take that waited for the descriptor. Another thread may have been faster, or a
// dead engine's text thread not ready.
inline int32_t take_next(tarn_engine* engine, tarn_event* event) {
  int32_t status = TARN_WOULD_BLOCK;
  while (status == TARN_WOULD_BLOCK && is_readable(engine, kLoopMs)) {
    *event = TARN_INIT(tarn_event);
    status = tarn_engine_take(engine, event);
  }
  return status;
}

// The next reply; events before it are lost.
inline tarn_event take_reply(tarn_engine* engine) {
  tarn_event event;
  do {
    REQUIRE(take_next(engine, &event) == TARN_OK);
  } while (event.type != TARN_EVENT_REPLY);
  return event;
}

}  // namespace tarn::test
