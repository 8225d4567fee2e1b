// The order in which the tokens of pairs of codes lie one behind the other, such that a step's best
// pairs are neighbours. A pair's score is the sum of its two codes' scores, so what a step wants
// is, for each good code of one sub-space, the good codes of the other: rows of a table. Rows are
// of the sub-space whose codes' scores differ more, weighted by their tokens; rows, and codes in a
// row, go by their scores. Which scores: those of the last query that is known. Later queries of a
// text resemble it, and where they do not, only the number of runs grows.
//
// A text's next query may turn far from that one, and then the good codes of a row are anywhere in
// it. So there is a second order with the roles changed: a pair of a good code lies in a full row
// of one order, and alone in a thin row of the other. choose_orders() takes it from where more of
// what is wanted lies beside it.
//
//   thread   any; one head at a time
#pragma once

#include <array>
#include <span>

#include "runtime/method/pq/pq_index.h"

namespace tarn::method {

// counts [side, side], tokens of each pair, to the place of each pair's first token in an order,
// 0 or 1. `places` may be `counts`. lut [n_heads, lut_elems()] is scratch. `index` has pairs and
// one codebook.
struct PlacePairsArgs {
  const kernels::CpuTable& table;
  const PqIndex& index;
  Query query;
  f32* lut;
  u32 order;
  std::span<const u32> counts;
  std::span<u32> places;
};
void place_pairs(const PlacePairsArgs& args);

// The wanted sectors of a pair, in each of two orders: [begin, end).
struct WantedPair {
  std::array<u32, 2> begin{}, end{};
  std::array<u32, 2> before{}, behind{};  // neighbours that are wanted too
  i32 difference = 0;                     // of what it costs in the two orders
  u32 order = 0;                          // from which it is to be read
  u16 pair = 0;
};
// Sectors that a disk reads in the time of a request that is one more.
inline constexpr u32 kRequestSectors = 4;
// Sets the order of each. `scratch` has room for as many as there are.
void choose_orders(std::span<WantedPair> pairs, std::span<u32> scratch);

}  // namespace tarn::method
