// The load controller: what depends on how fast this box is, and is now. decide() is a pure
// function of what was seen, what was learned before, and the profile.
//
// | decided | by | changes a token | when |
// | --- | --- | --- | --- |
// | share of chunks computed anew | profile; adaptive: what was learned, too | yes | they are fed |
// | KV on the disk: read or computed | what was learned | no | a run slot is given, or waited for |
// | length from which selection reads | profile (costs.h) | yes | the engine opens |
// | updates of a clustering | profile (method/index_jobs.h) | yes | it begins |
// | rows of prompts beside answers | times of steps (step/pace.h) | no | each step |
// | tier of new KV | frames; the oldest leave (kv/mover.h) | no | each step |
// | reads ahead: order, depth | order of uses, two pin sets (kv/use_plan.h) | no | each step |
//
//   learned    of each kind of work a factor: its time now over the profile's. An observation moves
//              it by a share of the difference from the times that were seen possible, and one that
//              is more than kMost times off counts as so much: one slow read is no slow disk. The
//              first ones count more: after the start, and after power mode, heat or clocks changed
//   probes     of KV that is computed anew though it lies on the disk the first pages are read all
//              the same, and no step waits for them. So a disk that was too slow is seen again
//   flips      the answer changes only where the other way takes a tenth less, and not within
//              kDecisionsHeld decisions of a change
//   memory     the caller's; thread  any
#pragma once

#include "runtime/control/costs.h"

namespace tarn::control {

// Work that was done: seconds by the profile, and by the clock between these two.
struct Spent {
  f64 predicted_s = 0, least_s = 0, most_s = 0;
  void add(f64 predicted_more_s, f64 least_more_s, f64 most_more_s) {
    predicted_s += predicted_more_s;
    least_s += least_more_s;
    most_s += most_more_s;
  }
};

// A prompt that gets a run slot. What is there of it lies in this order: in memory, on the disk,
// and the rest, which is computed.
struct Prompt {
  u32 n_tokens = 0;
  u32 n_memory = 0, n_disk = 0;     // tokens
  f64 n_requests = 0, n_bytes = 0;  // of the disk's part
};

struct Observation {
  Spent prefill{}, disk{};  // since the one before
  u64 power = 0;            // another number: power mode, heat or clocks have changed
  Prompt prompt{};
};

// The experience with one kind of work.
struct Learned {
  static constexpr f64 kShare = 0.25;  // of the difference, once something is known
  static constexpr f64 kMost = 4;      // times off
  static constexpr f64 kRange = 1024;  // of the factor, up and down
  f64 factor = 1;
  u32 n_seen = 0;
  void observe(const Spent& spent);
};

struct State {
  static constexpr u32 kDecisionsHeld = 64;
  Learned prefill{}, disk{};
  u64 power = 0;
  bool loads = true;
  u32 n_held = kDecisionsHeld;  // decisions since a change
};

struct Decision {
  State state{};      // for the next one
  Prompt prompt{};    // that it is of
  bool loads = true;  // the disk's part is read, all of it
  f64 load_s = 0;     // what the prompt takes if it is read,
  f64 compute_s = 0;  // and if it is computed; 0: the profile does not know
};
Decision decide(const Costs& costs, const Observation& seen, const State& state);

// The same of chunks: KV of n_bytes on the disk is transplanted into a prompt of n_tokens.
struct ChunkPrompt {
  u32 n_tokens = 0;
  f64 n_requests = 0, n_bytes = 0;
  f64 least = 1;  // the share that `tarn verify --reuse` found
};
struct ChunkDecision {
  f64 share = 1;
  f64 least = 1;
  f64 load_s = 0, prefill_s = 0;          // 0: the profile does not know
  f64 blend_s = 0;                        // of the whole prompt, chunks blended
  u32 n_chunk_tokens = 0, n_on_disk = 0;  // the latter of an adaptive one
  bool is_adaptive = false;
};
// By the profile, or with a state by what was learned.
ChunkDecision decide_chunks(const Costs& costs, const ChunkPrompt& prompt, const State* state);

// A prompt whose chunks are blended; n_there of its first tokens have KV.
struct BlendPrompt {
  u32 n_tokens = 0, n_there = 0;
  u32 n_chunks = 0, n_chunk_tokens = 0;
  u32 n_checked = 0;       // tokens up to the end of the last chunk
  u32 n_check_layers = 0;  // whose KV is computed to choose rows
  f64 share = 1;
};
// Seconds of its rows (costs.h: T_blend).
f64 blended_rows_s(const Costs& costs, const BlendPrompt& prompt);

}  // namespace tarn::control
