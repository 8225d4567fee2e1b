#include "runtime/step/schedule.h"

#include <algorithm>

namespace tarn::step {
namespace {

// Calls fn for each ready session, the first of them being `first_session` or the one behind it.
template <class Fn>
void in_turn(std::span<const Ready> ready, u32 first_session, Fn fn) {
  const auto is_before = [](const Ready& each, u32 session) { return each.session < session; };
  const auto first = std::lower_bound(ready.begin(), ready.end(), first_session, is_before);
  std::for_each(first, ready.end(), fn);
  std::for_each(ready.begin(), first, fn);
}

void add(const Ready& from, u32 n_rows, Schedule* out) {
  out->slices[out->n_slices++] = {from.session, from.kind, n_rows, from.is_generated};
}

// Returns the number of rows, here and below.
u32 add_single_rows(std::span<const Ready> ready, u32 n_rows_max, Priority priority,
                    ShareRing& ring, Schedule* out) {
  u32 n_rows = 0;
  bool is_cut = false;
  in_turn(ready, ring.next_single, [&](const Ready& each) {
    if (each.kind == RunKind::prefill || each.priority != priority || each.waits || is_cut) return;
    is_cut = n_rows == n_rows_max;
    if (is_cut) {
      ring.next_single = each.session;
      return;
    }
    add(each, 1, out);
    ++ring.accounts()[each.tenant].n_charged;
    ++n_rows;
  });
  return n_rows;
}

u32 add_prompts(std::span<const Ready> ready, u32 n_rows_max, Priority priority, ShareRing& ring,
                Schedule* out) {
  const auto is_prompt = [&](const Ready& each) {
    return each.kind == RunKind::prefill && each.priority == priority && !each.waits;
  };
  for (const Ready& each : ready) {
    if (is_prompt(each)) ring.accounts()[each.tenant].n_wanted += each.n_rows;
  }
  const u32 n_rows = ring.divide(n_rows_max);
  for (u32 tenant = 0; tenant < ring.accounts().size(); ++tenant) {
    ShareRing::Account& account = ring.accounts()[tenant];
    u32 n_left = account.n_given;
    if (n_left == 0) continue;
    in_turn(ready, account.next_session, [&](const Ready& each) {
      const u32 n = std::min(each.n_rows, n_left);
      if (n == 0 || each.tenant != tenant || !is_prompt(each)) return;
      add(each, n, out);
      n_left -= n;
      account.next_session = each.session + 1;
    });
  }
  return n_rows;
}

}  // namespace

void schedule(std::span<const Ready> ready, const StepLimits& limits, Shares& shares,
              Schedule* out) {
  out->n_slices = 0;
  u32 n_left = limits.rows_max;
  for (const Priority priority : kPriorities) {
    shares.of(priority).begin_step();
    n_left -= add_single_rows(ready, n_left, priority, shares.of(priority), out);
  }
  n_left = std::min(n_left, limits.prompt_rows_max);
  for (const Priority priority : kPriorities)
    n_left -= add_prompts(ready, n_left, priority, shares.of(priority), out);
}

}  // namespace tarn::step
