// Other ways to choose which tokens of chunks are computed anew, to compare with: they write scores
// of their own over the deviations, and the largest are chosen (reuse/blend/row_choice.h).
#pragma once

#include <span>

#include "runtime/reuse/blend/row_choice.h"

namespace tarn::lab {

struct RowScore {
  const char* name;
  reuse::ScoreRows score;  // nullptr: the deviations stand, as in the product
};
//   deviation   of V, as CacheBlend's authors choose
//   legolink    the first tokens of each chunk (EPIC, arXiv:2410.15332)
//   random      any, the same ones each time
std::span<const RowScore> row_scores();

}  // namespace tarn::lab
