// How long tokens take to be read: a part that grows with their number, and one, attention, with
// its square. Both follow from two points of a reading.
#pragma once

#include <algorithm>

#include "platform/base/types.h"

namespace tarn::step {

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

// Estimates a reading that began at the token `begin`; `early` lies behind it, `late` behind
// `early`.
inline ReadingTime reading_time(f64 begin, const ReadingPoint& early, const ReadingPoint& late) {
  const f64 early_rate = early.seconds / (early.n_tokens - begin);
  const f64 late_rate = late.seconds / (late.n_tokens - begin);
  const f64 square = std::max(0.0, (late_rate - early_rate) / (late.n_tokens - early.n_tokens));
  return {.s_per_token = std::max(0.0, late_rate - square * (late.n_tokens + begin)),
          .s_per_square = square};
}

// A reading that goes on: what is left of it, by the time until now and until half as many tokens,
// or about that, were read. Of the first kFirstTokens, by an even speed.
class ReadingClock {
 public:
  static constexpr f64 kFirstTokens = 1024;

  // Notes how much is read now. The first call begins, and so does one where less is read than
  // before. More may have come meanwhile. Returns how long the rest takes; 0 while nothing is
  // known.
  f64 left_s(u64 now_ns, u32 n_read, u32 n_all) {
    if (!is_begun_ || n_read < n_last_) {
      *this = ReadingClock();
      is_begun_ = true;
      begin_ns_ = now_ns;
      n_begin_ = n_read;
    }
    n_last_ = n_read;
    if (n_read == n_begin_) {  // it waits for a step of others
      begin_ns_ = now_ns;
      return 0;
    }
    const f64 begin = n_begin_, n = n_read;
    const f64 spent_s = static_cast<f64>(now_ns - begin_ns_) * 1e-9;
    const f64 n_next = late_.n_tokens == 0 ? kFirstTokens : 2 * (late_.n_tokens - begin);
    if (n - begin >= n_next) {
      early_ = late_;
      late_ = {n, spent_s};
    }
    if (early_.n_tokens == 0) return spent_s * (n_all - n) / (n - begin);
    return reading_time(begin, early_, {n, spent_s}).seconds(n, n_all);
  }
  void end() {
    if (is_begun_) *this = ReadingClock();
  }

 private:
  u64 begin_ns_ = 0;
  u32 n_begin_ = 0, n_last_ = 0;
  ReadingPoint early_{}, late_{};  // late_ has twice the tokens of early_ or more; 0: not there yet
  bool is_begun_ = false;
};

}  // namespace tarn::step
