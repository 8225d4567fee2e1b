// How many rows of prompts a step may have beside rows of answers, so that the gap between two
// tokens of a running answer keeps a bound. Where all single rows fit into a step, a gap is the
// time of one step. It is learned from steps:
//
//   alone    the time of the last step without prompts, scaled down where fewer answers run; a step
//            that takes less lowers it
//   row      the time that a row of a prompt adds to that: it rises at once and falls slowly
//   tried    the most rows of prompts that a step had beside answers
//   rows     q = min((gap - alone) / row, 2 * tried), but kRowsMin at least, so that prompts end
//
// What the gap can be at most. A step takes A + q * R: A for the rows of answers, R for a row of a
// prompt. Since alone + q * row <= gap:
//
//   time <= max(gap + (A - alone) + q * (R - row), A + kRowsMin * R)
//
//   A - alone   what answers take longer than in the last step without prompts: more of them, at
//               later positions. At most A, if there was no such step yet
//   R - row     what a row takes longer than those of the last step with kRowsMin or more of them.
//               It grows with attention, by the ratio of R at the two positions; row >= R where
//               `alone` was right or too low
//   before      anything is learned q = kRowsMin, then q at most doubles: the time does too
//   kept        while nothing changes, time <= max(gap, A + kRowsMin * R)
//
//   memory      four numbers
//   thread      the engine's
#pragma once

#include "platform/base/types.h"

namespace tarn::step {

class Pace {
 public:
  static constexpr u32 kRowsMin = 8;

  // After each step that was computed to its end.
  void observe(u32 n_answer_rows, u32 n_prompt_rows, u64 step_ns);
  // At most rows_max, which is what the step has left for prompts.
  u32 prompt_rows(u64 gap_ns, u32 n_answer_rows, u32 rows_max) const;

 private:
  static constexpr u64 kFall = 8;  // a step of prompt rows alone takes 1/8 of what is too much away

  u64 alone_ns(u32 n_answer_rows) const;

  u64 alone_ns_ = 0;
  u32 n_alone_rows_ = 0;  // of answers; 0: not known
  u64 row_ns_ = 0;        // 0: not known
  u32 n_tried_ = 0;
};

}  // namespace tarn::step
