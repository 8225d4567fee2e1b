#include "runtime/select/pair_order.h"

#include <algorithm>
#include <array>

#include "platform/base/assert.h"

namespace tarn::select {
namespace {

constexpr u32 kSideMax = kernels::kPqPairSideMax;

// Of one sub-space: its codes from the best to the worst, and how much their scores differ.
struct Ranking {
  std::array<u8, kSideMax> codes{};
  f32 spread = 0;
};

Ranking ranking_of(const PqIndex::Query& query, const f32* lut, u32 subspace, u32 side,
                   const std::array<u32, kSideMax>& n_tokens) {
  std::array<f32, kSideMax> sums{};
  Ranking ranking;
  f32 n = 0;
  for (u32 code = 0; code < side; ++code) n += static_cast<f32>(n_tokens[code]);
  for (u32 head = 0; head < query.n_heads; ++head) {
    const f32* scores = lut + (u64{head} * 2 + subspace) * side;
    f32 mean = 0;
    for (u32 code = 0; code < side; ++code) mean += scores[code] * static_cast<f32>(n_tokens[code]);
    mean /= std::max(n, 1.0f);
    for (u32 code = 0; code < side; ++code) {
      const f32 from_mean = scores[code] - mean;
      ranking.spread += from_mean * from_mean * static_cast<f32>(n_tokens[code]);
      sums[code] += scores[code];
    }
  }
  for (u32 n_in = 0; n_in < side; ++n_in) {  // by insertion: a NaN upsets nothing but the order
    u32 at = n_in;
    for (; at > 0 && sums[n_in] > sums[ranking.codes[at - 1]]; --at) {
      ranking.codes[at] = ranking.codes[at - 1];
    }
    ranking.codes[at] = static_cast<u8>(n_in);
  }
  return ranking;
}

}  // namespace

void place_pairs(const kernels::CpuTable& table, const PqIndex& index, const PqIndex::Query& query,
                 f32* lut, std::span<u32> counts) {
  const PqShape& shape = index.shape();
  const u32 side = shape.n_padded();
  TARN_ASSERT(shape.has_pairs() && counts.size() == u64{side} * side);
  index.fill_lut(table, 0, query, lut);
  std::array<std::array<u32, kSideMax>, 2> n_tokens{};
  for (u32 pair = 0; pair < counts.size(); ++pair) {
    n_tokens[0][pair / side] += counts[pair];
    n_tokens[1][pair % side] += counts[pair];
  }
  const Ranking first = ranking_of(query, lut, 0, side, n_tokens[0]);
  const Ranking second = ranking_of(query, lut, 1, side, n_tokens[1]);
  const bool rows_are_first = first.spread >= second.spread;
  u32 place = 0;
  for (u32 row = 0; row < side; ++row) {
    for (u32 column = 0; column < side; ++column) {
      const u32 pair = rows_are_first ? first.codes[row] * side + second.codes[column]
                                      : first.codes[column] * side + second.codes[row];
      const u32 n = counts[pair];
      counts[pair] = place;
      place += n;
    }
  }
}

}  // namespace tarn::select
