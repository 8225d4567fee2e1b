#include "runtime/method/pq/pair_order.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "platform/base/assert.h"

namespace tarn::method {
namespace {

constexpr u32 kSideMax = kernels::kPqPairSideMax;

// The ranking of one sub-space: its codes from the best to the worst, and how much their scores
// differ.
struct Ranking {
  std::array<u8, kSideMax> codes{};
  f32 spread = 0;
};

Ranking ranking_of(const Query& query, const f32* lut, u32 subspace, u32 side,
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

constexpr u32 kNone = ~u32{0};

// Returns the cost of reading on from one to the next, or of asking anew; they may share a sector.
i32 step_cost(const WantedPair& from, const WantedPair& to, u32 order) {
  const i32 gap = static_cast<i32>(to.begin[order]) - static_cast<i32>(from.end[order]);
  return std::min(gap, static_cast<i32>(kRequestSectors));
}

// Returns what the pair costs in an order, in sectors, beside what is read there anyway.
i32 cost_in(std::span<const WantedPair> pairs, u32 idx, u32 order) {
  const WantedPair& pair = pairs[idx];
  const u32 before = pair.before[order], behind = pair.behind[order];
  i32 cost = static_cast<i32>(pair.end[order] - pair.begin[order]);
  if (before != kNone) cost += step_cost(pairs[before], pair, order);
  if (behind != kNone) cost += step_cost(pair, pairs[behind], order);
  if (before != kNone && behind != kNone) cost -= step_cost(pairs[before], pairs[behind], order);
  return before == kNone && behind == kNone ? cost + static_cast<i32>(kRequestSectors) : cost;
}

void link(std::span<WantedPair> pairs, std::span<u32> by, u32 order) {
  std::ranges::sort(by, {}, [&](u32 idx) { return u64{pairs[idx].begin[order]} << 32 | idx; });
  for (u32 i = 0; i < by.size(); ++i) {
    pairs[by[i]].before[order] = i == 0 ? kNone : by[i - 1];
    pairs[by[i]].behind[order] = i + 1 == by.size() ? kNone : by[i + 1];
  }
}

void unlink(std::span<WantedPair> pairs, u32 idx, u32 order) {
  const u32 before = pairs[idx].before[order], behind = pairs[idx].behind[order];
  if (before != kNone) pairs[before].behind[order] = behind;
  if (behind != kNone) pairs[behind].before[order] = before;
}

}  // namespace

void place_pairs(const PlacePairsArgs& args) {
  const PqShape& shape = args.index.shape();
  const u32 side = shape.n_padded();
  TARN_ASSERT(shape.has_pairs() && args.counts.size() == u64{side} * side);
  TARN_ASSERT(args.places.size() == args.counts.size());
  args.index.fill_lut(args.table, args.query, args.lut);
  std::array<std::array<u32, kSideMax>, 2> n_tokens{};
  for (u32 pair = 0; pair < args.counts.size(); ++pair) {
    n_tokens[0][pair / side] += args.counts[pair];
    n_tokens[1][pair % side] += args.counts[pair];
  }
  const Ranking first = ranking_of(args.query, args.lut, 0, side, n_tokens[0]);
  const Ranking second = ranking_of(args.query, args.lut, 1, side, n_tokens[1]);
  const bool rows_are_first = (first.spread >= second.spread) == (args.order == 0);
  u32 place = 0;
  for (u32 row = 0; row < side; ++row) {
    for (u32 column = 0; column < side; ++column) {
      const u32 pair = rows_are_first ? first.codes[row] * side + second.codes[column]
                                      : first.codes[column] * side + second.codes[row];
      const u32 n = args.counts[pair];
      args.places[pair] = place;
      place += n;
    }
  }
}

// Chooses an order for each pair. All are in both orders at first; those for which it makes the
// most difference leave one of them before the others do.
void choose_orders(std::span<WantedPair> pairs, std::span<u32> scratch) {
  const std::span<u32> by = scratch.first(pairs.size());
  for (u32 i = 0; i < by.size(); ++i) by[i] = i;
  for (u32 order = 0; order < 2; ++order) link(pairs, by, order);
  for (u32 idx = 0; idx < by.size(); ++idx) {
    pairs[idx].difference = cost_in(pairs, idx, 0) - cost_in(pairs, idx, 1);
  }
  std::ranges::sort(by, [&](u32 a, u32 b) {
    const i32 of_a = std::abs(pairs[a].difference), of_b = std::abs(pairs[b].difference);
    return of_a != of_b ? of_a > of_b : a < b;
  });
  for (const u32 idx : by) {
    pairs[idx].order = cost_in(pairs, idx, 0) <= cost_in(pairs, idx, 1) ? 0 : 1;
    unlink(pairs, idx, 1 - pairs[idx].order);
  }
}

}  // namespace tarn::method
