#include "runtime/step/admission.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace tarn::step {

std::optional<u32> next_admitted(std::span<const Waiting> waiting, std::span<const u32> n_running,
                                 u32 running_max, const Shares& shares) {
  const bool is_full = std::accumulate(n_running.begin(), n_running.end(), 0u) >= running_max;
  const auto key = [&](const Waiting& each) {
    const bool is_due = each.n_overtaken >= kOvertakenMax;
    return std::tuple(each.priority, n_running[each.tenant],
                      shares.of(each.priority).n_turns_before(each.tenant), !is_due,
                      is_due ? 0 : ~each.n_cached, each.order);
  };
  std::optional<u32> best;
  for (u32 i = 0; i < waiting.size(); ++i) {
    const Waiting& each = waiting[i];
    if (is_full && n_running[each.tenant] > 0) continue;
    if (each.is_deferred && each.n_overtaken < kOvertakenMax) continue;
    if (!best || key(each) < key(waiting[*best])) best = i;
  }
  return best;
}

void give_run_slot(std::span<Waiting> waiting, u32 idx) {
  const Waiting& admitted = waiting[idx];
  for (Waiting& each : waiting) {
    const bool is_rival = each.tenant == admitted.tenant && each.priority == admitted.priority;
    if (is_rival && each.order < admitted.order) ++each.n_overtaken;
  }
}

bool is_deferred(const PromptState& waiting, const PromptState& running, u32 page_tokens) {
  if (running.priority > waiting.priority || waiting.ids.empty()) return false;
  const auto waiting_ids = waiting.ids.first(waiting.ids.size() - 1);  // its last row is its own
  const auto common = std::ranges::mismatch(waiting_ids, running.ids).in1 - waiting_ids.begin();
  const u32 n_shared = static_cast<u32>(common) / page_tokens * page_tokens;
  return waiting.n_computed < n_shared && running.n_computed < n_shared;
}

void RunSlotTime::observe(u64 held_ns) {
  if (mean_ns_ == 0) mean_ns_ = held_ns;
  mean_ns_ = (mean_ns_ * (kMemory - 1) + held_ns) / kMemory;
}

}  // namespace tarn::step
