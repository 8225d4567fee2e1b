// The bound of runtime/step/pace.h on the time of a step, from the times of a machine that a test
// knows: the header's formula, with its own record of the steps that the formula names.
#pragma once

#include <algorithm>

#include "runtime/step/pace.h"

namespace tarn::test {

struct PaceStep {
  u32 n_answers = 0, n_prompt_rows = 0;
  f64 answers_ms = 0;  // what the rows of answers take, the step's fixed part with them
  f64 row_ms = 0;      // what a row of a prompt adds
  f64 step_ms() const { return answers_ms + n_prompt_rows * row_ms; }
};

class PaceBound {
 public:
  static constexpr f64 kRounding = 1.0001;  // Pace counts whole nanoseconds

  // Returns the bound of a step with answers. Beyond gap_ms: what answers take longer than in the
  // last step without prompts, and rows longer than the last ones; and beyond kRowsMin what they
  // are at least.
  f64 ms(f64 gap_ms, const PaceStep& step) const {
    const f64 longer_ms = std::max(0.0, step.answers_ms - alone_ms(step.n_answers)) +
                          step.n_prompt_rows * std::max(0.0, step.row_ms - row_ms_);
    const f64 least_ms = step.answers_ms + step::Pace::kRowsMin * step.row_ms;
    return std::max(gap_ms + longer_ms, least_ms) * kRounding;
  }
  void observe(const PaceStep& step) {
    const f64 ms = step.step_ms();
    const bool is_alone = step.n_prompt_rows == 0 || ms < alone_ms(step.n_answers);
    if (step.n_answers > 0 && is_alone) {
      alone_ms_ = ms;
      n_alone_ = step.n_answers;
    }
    // Less than a row took where `alone` was too high.
    if (step.n_prompt_rows >= step::Pace::kRowsMin)
      row_ms_ = std::max(0.0, ms - alone_ms(step.n_answers)) / step.n_prompt_rows;
  }

 private:
  f64 alone_ms(u32 n_answers) const {
    return alone_ms_ * (n_answers < n_alone_ ? static_cast<f64>(n_answers) / n_alone_ : 1);
  }

  f64 alone_ms_ = 0, row_ms_ = 0;
  u32 n_alone_ = 0;
};

}  // namespace tarn::test
