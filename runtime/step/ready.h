// A session that has rows for a step.
#pragma once

#include "runtime/step/batch.h"

namespace tarn::step {

struct Ready {
  u32 session = 0;
  RunKind kind = RunKind::prefill;
  u32 n_rows = 0;             // that it could give now
  bool is_generated = false;  // its one row is that of a generated token
  bool waits = false;         // for a job: not in this step
};

}  // namespace tarn::step
