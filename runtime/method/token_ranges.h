// Which slots of a sequence are what, and when an index over the middle is built: pure functions of
// token counts, so that no timing can change a decision.
//
//   slots   [0, n_tokens) = sinks | middle | local, disjoint
//   sinks   the first ones, always attended to
//   middle  indexed; of these k are chosen in each step
//   local   the last ones, the current token among them, always attended to
//
// A token leaves local for the middle in the step that evicts it, and is a candidate in it.
#pragma once

#include "runtime/config/select_config.h"
#include "runtime/step/part.h"

namespace tarn::method {

using step::TokenRanges;
// Splits tokens into ranges. The middle never shrinks: where `local` has grown since, local fills
// up before anything is evicted.
TokenRanges token_ranges(u32 n_tokens, u32 n_sinks, u32 n_local, u32 middle_end_before = 0);

// How many tokens are chosen and how many are local, fixed when an index is built.
struct Budget {
  u32 n_local = 0;
  u32 k = 0;
};
struct BudgetRule {
  u32 context_divisor;  // 1/rho: both together are that share of the tokens behind the sinks
  u32 tokens_min;       // rho_min_tokens: prompts shorter than tokens_min * divisor share this many
  u32 n_sinks;
  u32 n_local;  // absolute, where context_divisor is 0; so is k
  u32 k;
  u32 context_min = 0;  // sequences shorter than that are read as a whole: no index is built
};
BudgetRule budget_rule(const SelectConfig& config);
Budget budget(const BudgetRule& rule, u32 n_tokens);

// A life in few words, as manifests have them: the rest of it follows from the rule. Zeros: nothing
// has happened yet.
struct KeptLife {
  u32 middle_end = 0;    // of the slots
  u32 rows_used = 0;     // clustered rows of the index in use; 0: there is none
  u32 used_trigger = 0;  // tokens there were when that was triggered
  u32 rows_pending = 0;  // likewise, of the job under way; 0: none
  u32 trigger_at = 0;
  u32 used_is_first = 0;  // 0 or 1
  friend bool operator==(const KeptLife&, const KeptLife&) = default;
};

// Builds and rebuilds of one sequence's index. A trigger says that the rows [middle_begin, row_end)
// are to be clustered in the background. The activation comes index_delay_tokens later: from that
// step on their index is used; a late job is waited for. Before the first one attention is dense.
//   trigger   no index, context_min tokens and rows_min of them in the middle; or more than half of
//             the middle was coded without being clustered
//   invariant rows clustered <= rows in the middle; at most one job at a time
enum class IndexEvent : u8 { none, build, rebuild, activate };
class IndexLife {
 public:
  static constexpr u32 kDelayTokens = 64;
  IndexLife() = default;
  IndexLife(const BudgetRule& rule, u32 code_bits, u32 index_delay_tokens = kDelayTokens)
      : rule_(rule), rows_min_(8u << code_bits), index_delay_tokens_(index_delay_tokens) {}

  // Notes that the sequence has n_tokens now, the current one among them; called with ascending
  // counts, once a step (after prefill: once for all of it), and again until it answers none.
  IndexEvent advance(u32 n_tokens);
  // Cuts to what the first n_tokens leave of it: the state that advance() had with them, if the
  // first index was triggered by then, and of several the last was in use; else nothing, and false.
  // A job that was triggered later is off.
  bool truncate(u32 n_tokens);
  void forget();

  // Returns what can be written down of it, and taken up again by a life of the same rule that has
  // seen n_tokens, of which n_slots have keys. False, and nothing is changed, where no life of this
  // rule can have been so: it is from a file.
  KeptLife kept() const;
  bool restore(const KeptLife& kept, u32 n_slots, u32 n_tokens);

  TokenRanges ranges() const { return ranges_; }
  u32 k() const { return used_budget().k; }
  bool is_dense() const { return rows_used_ == 0; }
  bool is_clustering() const { return rows_pending_ != 0; }  // triggered, not active yet
  // Returns how many rows the job that was triggered last clusters, and when they come into use;
  // and how many the index in use has clustered.
  u32 n_rows_clustering() const { return rows_pending_; }
  u32 n_rows_used() const { return rows_used_; }
  u32 active_at() const { return trigger_at_ + index_delay_tokens_; }

 private:
  // Returns the budget of the last trigger, if there is one.
  Budget used_budget() const {
    return budget(rule_, rows_pending_ != 0 ? trigger_at_ : used_trigger_);
  }

  BudgetRule rule_{};
  u32 rows_min_ = 0;
  u32 index_delay_tokens_ = 0;
  TokenRanges ranges_{};
  u32 rows_used_ = 0;     // clustered rows of the index in use
  u32 used_trigger_ = 0;  // tokens there were when it was triggered
  bool used_is_first_ = false;
  u32 rows_pending_ = 0;  // that the job under way clusters; 0: none
  u32 trigger_at_ = 0;
};

}  // namespace tarn::method
