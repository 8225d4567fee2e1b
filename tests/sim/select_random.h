// Random conversations that read by selection, over a few frames of memory and a faulty disk, each
// answer against that of an engine that was told the same and has all KV in memory (ROBUSTNESS R17,
// lossy presets), also where the engine goes, and another one takes up what it kept: the fast slice
// and the long run are the same code.
#pragma once

#include "tests/sim/event_counts.h"

namespace tarn::test {

struct SelectCounts {
  u64 answers = 0;       // that were compared
  u64 whole = 0;         // of them, to their end
  u64 by_selection = 0;  // of them, with rows that chose
  u64 given_up = 0;  // sessions of which the disk has lost a part, or for which there is no room
  u64 later_inputs = 0;  // answers behind a second input or more
  u64 exact = 0;         // tokens behind an input, with exact answers
  u64 cancelled = 0;     // answers that were cut off within a step, or between two
  u64 truncations = 0, forks = 0, beside = 0;  // beside: steps with rows of several sessions
  u64 clusterings = 0, loads = 0, gathered = 0, lost = 0;
  u64 restarts = 0, power_losses = 0, restored = 0;
  u64 codebooks_read = 0, extents_adopted = 0;  // of indexes that were taken up
  u64 went_on = 0;  // answers that were cut off by one, and said to their end
  FaultCounts faults;
};

// Goes on with seed after seed until n_answers were compared. Checks with doctest's macros.
void run_select(u64 first_seed, u64 n_answers, SelectCounts& counts);

// Prints the counts, and checks that each event was met at least n_min times.
void check_select_counts(const SelectCounts& counts, u64 n_min);

}  // namespace tarn::test
