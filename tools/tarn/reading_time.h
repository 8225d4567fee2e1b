// tools/tarn/reading_time.h
//
// How long tokens take to be read: a part that grows with their number, and one, attention, with
// its square. Both follow from two points of a reading.
#pragma once

#include <algorithm>

#include "platform/base/types.h"

namespace tarn::tools {

struct ReadingTime {
  f64 s_per_token = 0, s_per_square = 0;
  // From the token `from` to the token `to`.
  f64 seconds(f64 from, f64 to) const {
    return s_per_token * (to - from) + s_per_square * (to * to - from * from);
  }
};

struct ReadingPoint {
  f64 n_tokens = 0;  // that are read, of all
  f64 seconds = 0;   // since the begin
};

// Of a reading that began at the token `begin`; `early` lies behind it, `late` behind `early`.
inline ReadingTime reading_time(f64 begin, const ReadingPoint& early, const ReadingPoint& late) {
  const f64 early_rate = early.seconds / (early.n_tokens - begin);
  const f64 late_rate = late.seconds / (late.n_tokens - begin);
  const f64 square = std::max(0.0, (late_rate - early_rate) / (late.n_tokens - early.n_tokens));
  return {.s_per_token = std::max(0.0, late_rate - square * (late.n_tokens + begin)),
          .s_per_square = square};
}

}  // namespace tarn::tools
