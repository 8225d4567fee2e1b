// Random lives of a host with one event loop and more conversations than an engine has KV for, over
// its descriptor alone. The fast slice and the long run are the same code.
#pragma once

#include "platform/base/types.h"

namespace tarn::test {

struct CallerCounts {
  u64 lives = 0, calls = 0, tokens = 0, seconds = 0;
  u64 compared = 0;  // answers with those of the same history alone
  u64 ends = 0, stops = 0, lengths = 0, context_full = 0;
  u64 prompt_cancels = 0, answer_cancels = 0;  // DONE before the first token, or after it
  u64 prompt_deadlines = 0, answer_deadlines = 0;
  u64 feeds_cut = 0;  // prefills that a cancel ended
  u64 texts = 0, chats = 0, forks = 0, truncations = 0, waits_over = 0;
  u64 evictions = 0;  // KV of a session that was seen to fall while its tokens stayed
  u64 busy_destroys = 0, calls_behind = 0;       // of sessions with calls in flight
  u64 calls_behind_failed = 0;                   // calls
  u64 refused = 0;                               // calls on a session that computes or generates
  u64 no_slot = 0, no_session = 0, no_turn = 0;  // TARN_WOULD_BLOCK
  u64 saves = 0, restores = 0;
  u64 from_memory = 0, from_disk = 0;  // answers to prompts that took KV from there
  u64 closed_in_flight = 0;
};

struct Callers {
  u64 first_seed = 0;
  u64 n_lives = 0;  // 0: by time
  u64 seconds = 0;  // of lives, without the time that comparing takes
  u64 n_acts = 0;   // of each life
};

// Life after life, each of its own seed. Checks with doctest's macros.
void run_callers(const Callers& callers, CallerCounts& counts);

// Prints the counts, and checks that each event was met at least n_min times.
void check_caller_counts(const CallerCounts& counts, u64 n_min);

}  // namespace tarn::test
