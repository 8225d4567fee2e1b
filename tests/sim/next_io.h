// A process' way to a simulated disk, and the one of the process behind it.
#pragma once

#include <array>
#include <memory>

#include "tests/support/sim_disk.h"

namespace tarn::test {

// Ends what the process before had under way, whatever was stuck.
inline std::unique_ptr<SimIo> next_io(SimDisk& disk, VirtualClock& clock,
                                      std::unique_ptr<SimIo> before) {
  before->let_stuck_go();
  std::array<IoCompletion, 32> late{};
  while (before->n_in_flight() > 0) before->reap(late, 1, 1'000'000'000);
  before.reset();
  return std::make_unique<SimIo>(disk, clock, 32);
}

}  // namespace tarn::test
