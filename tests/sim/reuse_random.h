// Random conversations with an engine whose KV lies over a few frames of memory and a store on a
// faulty disk, each answer against that of an engine with an empty cache (ROBUSTNESS R17): the fast
// slice and the long run are the same code.
#pragma once

#include <array>

#include "tests/sim/event_counts.h"

namespace tarn::test {

struct ReuseCounts {
  u64 requests = 0;               // answers that were compared
  u64 whole = 0;                  // of them, to their end
  u64 failed = 0, cancelled = 0;  // ended by an error, or by a cancel: compared as far as they got
  u64 tokens = 0;
  u64 refused = 0;  // feeds and forks for which there was no KV
  u64 truncations = 0, forks = 0, destroyed = 0, prefill_cancels = 0;
  u64 saved = 0, restarts = 0, restored = 0;
  u64 loads = 0, spills = 0, lost = 0;
  u64 reused_from_memory = 0, reused_from_disk = 0;  // feeds
  FaultCounts faults;
};

// Goes on with seed after seed until n_requests answers were compared. Checks with doctest's
// macros.
void run_reuse(u64 first_seed, u64 n_requests, ReuseCounts& counts);

// Prints the counts, and checks that each event was met at least n_min times.
void check_reuse_counts(const ReuseCounts& counts, u64 n_min);

}  // namespace tarn::test
