// Which tokens of a session were fed, and which generated: inputs and answers in turn. Reading by
// selection follows it (an input's last row reads everything, a turn's end may make an index), so a
// cut brings back what was there before: tokens and turns alone decide what follows.
//
//   memory    fixed: the last kAnswersMax answers before the last input
//   when full the oldest is forgotten: a cut that far back takes what stands there for one input
//   thread    the engine's
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "platform/base/types.h"

namespace tarn::engine {

class Turns {
 public:
  static constexpr u32 kAnswersMax = 32;

  // Tokens up to the last one that was fed; what follows was generated.
  u32 n_fed() const { return n_fed_; }
  // Where what was fed since a token was generated begins.
  u32 input_begin() const { return n_answers_ == 0 ? 0 : answers_[n_answers_ - 1].end; }

  struct Answer {
    u32 begin = 0, end = 0;
  };
  // The last ones with an input behind them, in order.
  std::span<const Answer> answers() const { return std::span(answers_).first(n_answers_); }
  // Of a session that was kept: as it was there.
  void restore(u32 n_fed, std::span<const Answer> answers) {
    n_fed_ = n_fed;
    n_answers_ = 0;
    for (const Answer& answer : answers) add(answer);
  }

  // n tokens more, behind the n_ids that the session has.
  void feed(u32 n_ids, u32 n) {
    if (n == 0) return;
    if (n_ids != n_fed_) add({.begin = n_fed_, .end = n_ids});
    n_fed_ = n_ids + n;
  }
  // The session has its first n_ids tokens only.
  void truncate(u32 n_ids) {
    n_fed_ = std::min(n_fed_, n_ids);
    for (; n_answers_ > 0 && n_ids <= answers_[n_answers_ - 1].end; --n_answers_) {
      n_fed_ = std::min(n_ids, answers_[n_answers_ - 1].begin);
    }
  }
  // All of its n_ids tokens are one input.
  void start_over(u32 n_ids) {
    n_fed_ = n_ids;
    n_answers_ = 0;
  }

 private:
  void add(const Answer& answer) {
    if (n_answers_ == kAnswersMax) {
      std::copy(answers_.begin() + 1, answers_.end(), answers_.begin());
      --n_answers_;
    }
    answers_[n_answers_++] = answer;
  }

  u32 n_fed_ = 0;
  u32 n_answers_ = 0;  // with an input behind them
  std::array<Answer, kAnswersMax> answers_{};
};

}  // namespace tarn::engine
