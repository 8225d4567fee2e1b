// runtime/select/pair_order.h
//
// The order in which the tokens of pairs of codes lie one behind the other, such that a step's best
// pairs are neighbours. A pair's score is the sum of its two codes' scores, so what a step wants
// is, for each good code of one sub-space, the good codes of the other: rows of a table. Rows are
// of the sub-space whose codes' scores differ more, weighted by their tokens; rows, and codes in a
// row, go by their scores. Which scores: those of the last query that is known. Later queries of a
// text resemble it, and where they do not, only the number of runs grows.
//
//   thread   any; one head at a time
#pragma once

#include <span>

#include "runtime/select/pq_index.h"

namespace tarn::select {

// counts [side, side], tokens of each pair, become the place of each pair's first token. lut
// [n_heads, lut_elems()] is scratch. `index` has pairs and one codebook.
void place_pairs(const kernels::CpuTable& table, const PqIndex& index, const PqIndex::Query& query,
                 f32* lut, std::span<u32> counts);

}  // namespace tarn::select
