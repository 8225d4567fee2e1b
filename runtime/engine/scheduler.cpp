#include "runtime/engine/scheduler.h"

#include <algorithm>

namespace tarn::engine {

void schedule(std::span<const Ready> ready, u32 rows_max, Schedule* out) {
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

}  // namespace tarn::engine
