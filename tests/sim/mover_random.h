// Random lives of sequences whose KV lies over a few frames of memory and a store on a faulty disk,
// one a seed, against an oracle that knows every byte; in half of them groups have names, and what
// was forgotten is said again or taken up from its records: the fast slice and the long run are
// the same code.
#pragma once

#include <array>

#include "runtime/kv/residency.h"
#include "tests/sim/event_counts.h"

namespace tarn::test {

struct MoverRunCounts {
  std::array<u64, kv::kWheres> wheres{};  // groups in each, summed over the acts
  FaultCounts faults;
  u64 pin_sets = 0, hits = 0, waited = 0, lost = 0, stuck = 0, loads = 0, spills = 0,
      spill_failures = 0, evictions = 0, truncations = 0, forks = 0, clears = 0, over_budget = 0,
      late_frames = 0, gathers = 0, parts = 0, known = 0, taken_up = 0, taken_from_memory = 0,
      replaced = 0, dropped = 0;
};

// Adds what the lives of seeds [first, first + n) met. Checks with doctest's macros.
void run_mover_lives(u64 first_seed, u64 n_seeds, MoverRunCounts& counts);

// Prints the counts, and checks that each state, each fault and the other events were met at least
// n_min times.
void check_mover_counts(const MoverRunCounts& counts, u64 n_min);

}  // namespace tarn::test
