#include "runtime/method/token_ranges.h"

#include <algorithm>

namespace tarn::method {

TokenRanges token_ranges(u32 n_tokens, u32 n_sinks, u32 n_local, u32 middle_end_before) {
  const u32 begin = std::min(n_tokens, n_sinks);
  const u32 end = n_tokens - std::min(n_tokens - begin, n_local);
  return {.middle_begin = begin,
          .middle_end = std::min(n_tokens, std::max(end, middle_end_before)),
          .n_tokens = n_tokens};
}

BudgetRule budget_rule(const SelectConfig& config) {
  // Where reading by selection begins to be faster than reading everything: by the profile, or else
  // at twice what it reads.
  const bool has_own_min = config.context_min != 0 || config.context_divisor != 0;
  const u32 n_read = config.n_sinks + config.n_local + config.k;
  const u32 faster_from = config.context_from != 0 ? config.context_from : 2 * n_read;
  return {.context_divisor = config.context_divisor,
          .tokens_min = config.tokens_min,
          .n_sinks = config.n_sinks,
          .n_local = config.n_local,
          .k = config.k,
          .context_min = has_own_min ? config.context_min : faster_from};
}

Budget budget(const BudgetRule& rule, u32 n_tokens) {
  if (rule.context_divisor == 0) return {.n_local = rule.n_local, .k = rule.k};
  const u32 behind = n_tokens - std::min(n_tokens, rule.n_sinks);
  const bool is_short = n_tokens < u64{rule.tokens_min} * rule.context_divisor;
  const u32 both = is_short ? std::min(rule.tokens_min, behind) : behind / rule.context_divisor;
  // The current token is always local.
  return {.n_local = std::max(both / 2, 1u), .k = std::max(both / 2, 1u)};
}

IndexEvent IndexLife::advance(u32 n_tokens) {
  // Without an index, local and k follow the length.
  const bool has_budget = rows_used_ != 0 || rows_pending_ != 0;
  const u32 n_local = has_budget ? used_budget().n_local : budget(rule_, n_tokens).n_local;
  ranges_ = method::token_ranges(n_tokens, rule_.n_sinks, n_local, ranges_.middle_end);
  if (rows_pending_ != 0) {
    if (n_tokens < active_at()) return IndexEvent::none;
    used_is_first_ = rows_used_ == 0;
    rows_used_ = rows_pending_;
    used_trigger_ = trigger_at_;
    rows_pending_ = 0;
    return IndexEvent::activate;
  }
  const u32 n_rows = ranges_.n_middle();
  const bool builds = rows_used_ == 0 && n_rows >= rows_min_ && n_tokens >= rule_.context_min;
  const bool rebuilds =
      rows_used_ != 0 && n_rows > rows_used_ && u64{n_rows - rows_used_} * 2 > n_rows;
  if (!builds && !rebuilds) return IndexEvent::none;
  rows_pending_ = n_rows;
  trigger_at_ = n_tokens;
  return builds ? IndexEvent::build : IndexEvent::rebuild;
}

void IndexLife::forget() {
  ranges_ = {};
  rows_used_ = used_trigger_ = rows_pending_ = trigger_at_ = 0;
}

bool IndexLife::truncate(u32 n_tokens) {
  if (rows_pending_ != 0 && n_tokens < trigger_at_) rows_pending_ = 0;
  const bool undoes_activation =
      rows_used_ != 0 && n_tokens < u64{used_trigger_} + index_delay_tokens_;
  const bool undoes_trigger = rows_used_ != 0 && n_tokens < used_trigger_;
  const bool is_empty = rows_used_ == 0 && rows_pending_ == 0;
  if (is_empty || undoes_trigger ||
      (undoes_activation && (!used_is_first_ || rows_pending_ != 0))) {
    forget();
    return false;
  }
  if (undoes_activation) {
    rows_pending_ = rows_used_;
    trigger_at_ = used_trigger_;
    rows_used_ = 0;
  }
  const u32 n_rows = std::max(rows_used_, rows_pending_);
  ranges_ =
      method::token_ranges(n_tokens, rule_.n_sinks, used_budget().n_local, rule_.n_sinks + n_rows);
  return true;
}

KeptLife IndexLife::kept() const {
  return {.middle_end = ranges_.middle_end,
          .rows_used = rows_used_,
          .used_trigger = rows_used_ == 0 ? 0 : used_trigger_,
          .rows_pending = rows_pending_,
          .trigger_at = rows_pending_ == 0 ? 0 : trigger_at_,
          .used_is_first = used_is_first_ && rows_used_ != 0 ? 1u : 0u};
}

// Returns whether a trigger's rows end before its last token: whatever keeps that token keeps them.
static bool ends_before(u32 n_rows, u32 trigger, u32 n_sinks) {
  return n_rows == 0 || u64{n_sinks} + n_rows < trigger;
}

bool IndexLife::restore(const KeptLife& kept, u32 n_slots, u32 n_tokens) {
  const u32 n_sinks = std::min(n_slots, rule_.n_sinks);
  if (kept.middle_end > n_slots || kept.middle_end >= std::max(n_tokens, 1u)) return false;
  const u32 n_middle = kept.middle_end - std::min(kept.middle_end, n_sinks);
  const bool is_used = kept.rows_used != 0, is_pending = kept.rows_pending != 0;
  if (kept.rows_used > n_middle || kept.rows_pending > n_middle) return false;
  if (is_used != (kept.used_trigger != 0)) return false;
  if (is_used && (kept.rows_used < rows_min_ || kept.used_trigger > n_tokens ||
                  n_tokens - kept.used_trigger < index_delay_tokens_)) {
    return false;
  }
  if (kept.used_is_first > (is_used ? 1u : 0u)) return false;
  if (is_pending != (kept.trigger_at != 0) || kept.trigger_at > n_tokens) return false;
  if (!ends_before(kept.rows_used, kept.used_trigger, n_sinks)) return false;
  if (!ends_before(kept.rows_pending, kept.trigger_at, n_sinks)) return false;
  // One job at a time, and none for fewer rows.
  if (is_used && is_pending &&
      (kept.trigger_at < u64{kept.used_trigger} + index_delay_tokens_ ||
       kept.rows_pending <= kept.rows_used)) {
    return false;
  }
  if (is_pending && kept.rows_pending < rows_min_) return false;
  forget();
  rows_used_ = kept.rows_used;
  used_trigger_ = kept.used_trigger;
  used_is_first_ = kept.used_is_first != 0;
  rows_pending_ = kept.rows_pending;
  trigger_at_ = kept.trigger_at;
  ranges_ = {.middle_begin = n_sinks,
             .middle_end = std::max(kept.middle_end, n_sinks),
             .n_tokens = n_slots};
  return true;
}

}  // namespace tarn::method
