// Which rows make the next step. A pure function of the sessions that are ready.
//
//   order      first single rows, one of each session, by session; then prompts in turn, so that
//              the prompt behind the one served last comes first
//   invariant  the rows of a schedule are rows_max at most; a session has one slice at most
#pragma once

#include <algorithm>
#include <span>

#include "runtime/step/batch.h"

namespace tarn::step {

struct Slice {
  u32 session = 0;
  RunKind kind = RunKind::prefill;
  u32 n_rows = 0;
  bool is_generated = false;
};

struct Schedule {
  std::span<Slice> slices{};  // one for each ready session at least; the first n_slices are used
  u32 n_slices = 0;
  u32 next_prompt = 0;  // prompts are served in turn, from this session's on
};

// `ready` is in the order of sessions. Takes next_prompt from `out`, and writes all of it.
inline void schedule(std::span<const Ready> ready, u32 rows_max, Schedule* out) {
  u32 n_left = rows_max;
  out->n_slices = 0;
  const auto add = [&](const Ready& from) {
    const u32 n_rows = std::min(from.n_rows, n_left);
    if (from.waits || n_rows == 0) return false;
    out->slices[out->n_slices++] = {from.session, from.kind, n_rows, from.is_generated};
    n_left -= n_rows;
    return true;
  };
  for (const Ready& each : ready) {
    if (each.kind != RunKind::prefill) add(each);
  }
  const auto is_before = [](const Ready& each, u32 session) { return each.session < session; };
  const auto first =
      std::lower_bound(ready.begin(), ready.end(), out->next_prompt, is_before) - ready.begin();
  for (u64 i = 0; i < ready.size(); ++i) {
    const Ready& each = ready[(static_cast<u64>(first) + i) % ready.size()];
    if (each.kind == RunKind::prefill && add(each)) out->next_prompt = each.session + 1;
  }
}

}  // namespace tarn::step
