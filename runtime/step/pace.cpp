#include "runtime/step/pace.h"

#include <algorithm>

namespace tarn::step {

// Estimates a step without rows of prompts. A step reads the weights once: half of the answers take
// half of the time or more.
u64 Pace::alone_ns(u32 n_answer_rows) const {
  if (n_answer_rows >= n_alone_rows_) return alone_ns_;
  return alone_ns_ * n_answer_rows / n_alone_rows_;
}

void Pace::observe(u32 n_answer_rows, u32 n_prompt_rows, u64 step_ns) {
  if (n_answer_rows > 0 && (n_prompt_rows == 0 || step_ns < alone_ns(n_answer_rows))) {
    alone_ns_ = step_ns;
    n_alone_rows_ = n_answer_rows;
  }
  if (n_prompt_rows < kRowsMin) return;  // too few to tell their time from noise
  if (n_answer_rows > 0) n_tried_ = std::max(n_tried_, n_prompt_rows);
  const u64 prompts_ns = step_ns - std::min(step_ns, alone_ns(n_answer_rows));
  const u64 row_ns = prompts_ns / n_prompt_rows;
  if (row_ns >= row_ns_) {
    row_ns_ = row_ns;
    return;
  }
  // The less of the step its rows were, the less it tells.
  const f64 weight = static_cast<f64>(prompts_ns) / static_cast<f64>(step_ns);
  row_ns_ -= static_cast<u64>(static_cast<f64>(row_ns_ - row_ns) * weight / kFall);
}

u32 Pace::prompt_rows(u64 gap_ns, u32 n_answer_rows, u32 rows_max) const {
  if (n_answer_rows == 0) return rows_max;
  u64 n_rows = u64{2} * n_tried_;
  if (row_ns_ > 0) {
    const u64 alone = alone_ns(n_answer_rows);
    n_rows = std::min(n_rows, (gap_ns - std::min(gap_ns, alone)) / row_ns_);
  }
  return static_cast<u32>(std::min<u64>(rows_max, std::max<u64>(n_rows, kRowsMin)));
}

}  // namespace tarn::step
