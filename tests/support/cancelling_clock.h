// A virtual clock that cancels a session at its n-th reading, or at a given time: a cancel in the
// middle of a step. The engine reads the clock between parts of a step, and while it waits for a
// disk.
#pragma once

#include <utility>

#include "platform/clock/clock.h"
#include "runtime/engine/engine.h"

namespace tarn::test {

class CancellingClock final : public Clock {
 public:
  u64 now_ns() override {
    const u64 now = disk.now_ns();
    ++n_readings;
    if (engine_ == nullptr || n_readings < at_reading_ || now < at_ns_) return now;
    std::exchange(engine_, nullptr)->sessions().request_cancel(session_);
    return now;
  }
  void nap_ns(u64 ns) override { disk.nap_ns(ns); }
  void arm(engine::Engine& engine, engine::SessionIdx session, u64 n) {
    engine_ = &engine;
    session_ = session;
    at_reading_ = n_readings + n;
    at_ns_ = 0;
  }
  void arm_at(engine::Engine& engine, engine::SessionIdx session, u64 ns) {
    arm(engine, session, 0);
    at_ns_ = ns;
  }
  void disarm() { engine_ = nullptr; }
  bool is_armed() const { return engine_ != nullptr; }

  VirtualClock disk{};  // the clock of simulated disks
  u64 n_readings = 0;

 private:
  engine::Engine* engine_ = nullptr;
  engine::SessionIdx session_ = 0;
  u64 at_reading_ = 0, at_ns_ = 0;
};

}  // namespace tarn::test
