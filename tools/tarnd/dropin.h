// The drop-in of tarnd.service (toolchain/) for one configuration: what its sandbox and limits must
// know of the plan. tarnd --dropin prints it.
#pragma once

#include <string>

#include "runtime/api/tarn.h"

namespace tarn::daemon {

struct DropinFacts {
  tarn_plan plan{};            // of the engine
  uint64_t network_bytes = 0;  // of the daemon's own, beside it
  uint64_t n_descriptors = 0;
  uint64_t stop_s = 0;      // how long its end takes at most
  std::string store_dir{};  // empty: none
  bool uses_gpu = false;
  std::string tcp_peers{};  // localhost or any: who reaches a TCP socket of its own; empty: none
};

// MemoryMax is a net under a fault of ours: the plan, and what every program needs beside it. It
// does not see a GPU's memory.
std::string dropin_of(const DropinFacts& facts);

}  // namespace tarn::daemon
