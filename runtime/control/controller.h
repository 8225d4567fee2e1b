// The state of an engine's controller: what steps and reads took since the last decision, what
// was learned before, and the profile. Off where the profile does not have the costs.
//
//   thread   the engine's
#pragma once

#include <algorithm>

#include "runtime/control/control.h"

namespace tarn::control {

class Controller {
 public:
  static constexpr u32 kRowsSeen = 16;  // of a step from which a prefill's time is learned
  static constexpr u32 kProbeRequests = 64;
  static constexpr f64 kPowerS = 10;  // between two looks at the box's power state
  struct Facts {
    Costs costs{};
    bool is_adaptive = false;
    u32 page_tokens = 0;
    u64 page_bytes = 0;     // of all layers
    u32 page_requests = 0;  // likewise
  };
  void init(const Facts& facts) { *this = Controller(facts); }
  Controller() = default;
  // Whether KV on the disk may be computed instead.
  bool knows_costs() const { return facts_.costs.has_prefill() && facts_.costs.has_disk(); }
  bool is_adaptive() const { return facts_.is_adaptive; }

  // A step that computed tokens [from, to) of a prompt and nothing else.
  void note_prefill(u32 from, u32 to) { prefill_s_ += facts_.costs.prefill_s(from, to); }
  void note_prefill_time(f64 took_s);
  // Reads that have ended, and between which times they took.
  void note_reads(f64 n_requests, f64 n_bytes, f64 least_s, f64 most_s) {
    seen_.disk.add(facts_.costs.load_s(n_requests, n_bytes), least_s, most_s);
  }
  bool wants_power(f64 now_s) {
    const bool is_due = now_s >= power_due_s_;
    if (is_due) power_due_s_ = now_s + kPowerS;
    return is_due;
  }
  void note_power(u64 power) { seen_.power = power; }

  // Decides for a prompt that gets a run slot: n_memory of its first tokens are there in memory,
  // n_disk on the disk.
  Decision decide_prompt(u32 n_tokens, u32 n_memory, u32 n_disk);
  // Returns the tokens of a probe: as many reads as are under way where all is read.
  u32 probe_tokens() const {
    return facts_.page_tokens * std::max(1u, kProbeRequests / std::max(1u, facts_.page_requests));
  }
  // Decides for a prompt with chunks, by the profile, as if all of their KV lay on the disk; or
  // where the configuration is adaptive, by what was learned, and by the tokens whose KV lies
  // there.
  ChunkDecision decide_share(u32 n_tokens, u32 n_chunk_tokens, u32 n_on_disk, f64 least) const;
  // While KV of its chunks is read for load_s; 0: the profile does not know.
  f64 blend_s(const BlendPrompt& prompt, f64 load_s) const {
    if (!facts_.costs.has_prefill()) return 0;
    return std::max(load_s, state_.prefill.factor * blended_rows_s(facts_.costs, prompt));
  }

 private:
  explicit Controller(const Facts& facts) : facts_(facts) {}
  f64 n_pages(u32 n_tokens) const { return static_cast<f64>(n_tokens) / facts_.page_tokens; }

  Facts facts_{};
  State state_{};
  Observation seen_{};
  f64 prefill_s_ = 0;  // by the profile, of the step under way
  f64 power_due_s_ = 0;
};

}  // namespace tarn::control
