// Random lives of a store on a faulty disk, one a seed, and what they met on the way: the fast
// slice and the long run are the same code.
#pragma once

#include "tests/sim/event_counts.h"

namespace tarn::test {

struct RandomRunCounts {
  FaultCounts faults;
  u64 published = 0, dropped = 0, failed_puts = 0;
  u64 pins = 0, unpins = 0, kills = 0, power_losses = 0, torn = 0, reads_ok = 0, misses = 0,
      corrupt = 0, flushed_checks = 0, turned_off = 0, read_only = 0, returned = 0,
      other_tokens = 0, evicted = 0, erased = 0, replaced = 0, spoiled = 0, unreadable = 0,
      truncated = 0, cut_reads = 0, replaced_files = 0, intruders = 0;
};

// Adds what the lives of seeds [first, first + n) met. Checks with doctest's macros.
void run_random_lives(u64 first_seed, u64 n_seeds, RandomRunCounts& counts);

// Prints the counts, and checks that each event and each fault was met at least
// `n_min` times.
void check_counts(const RandomRunCounts& counts, u64 n_min);

}  // namespace tarn::test
