#include "runtime/method/selection.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "runtime/method/random_at.h"

namespace tarn::method {
namespace {

constexpr u32 kTileTokens = PqIndex::kTileTokens;

struct Scratch {
  f32* lut;          // [n_heads, lut_elems]; the oracle's products of a tile
  f32* keys;         // [kTileTokens, head_dim] and its transpose
  f32* scores;       // [n_heads, n]
  f32* weights;      // [n]
  u32* places;       // [n]
  std::byte* radix;  // the radix' counts; weights of pairs
};
constexpr u64 kRankBytes = std::max(kernels::kTopKScratchBytes, kernels::kPqPairScratchBytes);

u64 lut_elems(const SelectionShape& shape) {
  return u64{shape.n_group_heads} * std::max(shape.lut_elems, kTileTokens);
}
// A middle of a few tokens may be two pages of Quest's.
u64 n_candidates(const SelectionShape& shape) { return std::max(shape.middle_tokens_max, 64u); }
u64 key_elems(const SelectionShape& shape) { return u64{2} * kTileTokens * shape.head_dim; }

// The same order as selection_scratch_bytes() adds it up in.
Scratch carve(const SelectionArgs& args, const SelectionShape& shape) {
  TARN_ASSERT(args.scratch.size() >= selection_scratch_bytes(shape));
  std::byte* at = args.scratch.data();
  const auto take = [&](u64 n_bytes) {
    std::byte* const piece = at;
    at += (n_bytes + 63) / 64 * 64;
    return piece;
  };
  const u64 n = n_candidates(shape);
  Scratch scratch{};
  scratch.radix = take(kRankBytes);
  scratch.lut = reinterpret_cast<f32*>(take(lut_elems(shape) * sizeof(f32)));
  scratch.keys = reinterpret_cast<f32*>(take(key_elems(shape) * sizeof(f32)));
  scratch.scores = reinterpret_cast<f32*>(take(shape.n_group_heads * n * sizeof(f32)));
  scratch.weights = reinterpret_cast<f32*>(take(n * sizeof(f32)));
  scratch.places = reinterpret_cast<u32*>(take(n * sizeof(u32)));
  return scratch;
}

SelectionShape shape_of(const SelectionArgs& args, u32 head_dim, u32 n_lut) {
  return {args.query.n_heads, head_dim, n_lut, args.segments.n_middle()};
}

void append_range(u32 begin, u32 end, const SelectionArgs& args, u32& n_out) {
  TARN_ASSERT(n_out + (end - begin) <= args.slots.size());
  for (u32 slot = begin; slot < end; ++slot) args.slots[n_out++] = slot;
}

// Sinks, the chosen places of the middle, which ascend, and the local window.
u32 compose(const SelectionArgs& args, const u32* places, u32 n_places) {
  u32 n_out = 0;
  append_range(0, args.segments.middle_begin, args, n_out);
  TARN_ASSERT(n_out + n_places <= args.slots.size());
  for (u32 i = 0; i < n_places; ++i) args.slots[n_out++] = args.segments.middle_begin + places[i];
  append_range(args.segments.middle_end, args.segments.n_tokens, args, n_out);
  return n_out;
}

// scores [n_heads, n] to what the n candidates are ranked by.
const f32* rank(const SelectionArgs& args, const Scratch& scratch, u32 n) {
  if (args.query.n_heads == 1) return scratch.scores;
  args.table.pq_weigh({.scores = scratch.scores,
                       .scores_stride = n,
                       .weights = scratch.weights,
                       .n_tokens = n,
                       .n_heads = args.query.n_heads});
  return scratch.weights;
}

// Sinks, the middle's part of chosen blocks, `first` the first of all, and the local window. Blocks
// of the middle's ends may be cut, so as many whole ones as fit k always fit.
u32 compose_blocks(const SelectionArgs& args, u32 block_tokens, u32 first,
                   std::span<const u32> places) {
  const Segments& s = args.segments;
  u32 n_out = 0;
  append_range(0, s.middle_begin, args, n_out);
  for (const u32 place : places) {
    const u32 begin = (first + place) * block_tokens;
    append_range(std::max(begin, s.middle_begin), std::min(begin + block_tokens, s.middle_end),
                 args, n_out);
  }
  append_range(s.middle_end, s.n_tokens, args, n_out);
  return n_out;
}

// By the sums of the tokens' weights, of one head too: scores do not add up.
u32 choose_blocks(const SelectionArgs& args, const Scratch& scratch) {
  const Segments& s = args.segments;
  const u32 n = s.n_middle(), n_block = args.block_tokens;
  if (n == 0) return compose(args, nullptr, 0);
  args.table.pq_weigh({.scores = scratch.scores,
                       .scores_stride = n,
                       .weights = scratch.weights,
                       .n_tokens = n,
                       .n_heads = args.query.n_heads});
  const u32 first = s.middle_begin / n_block;
  const u32 n_blocks = (s.middle_end + n_block - 1) / n_block - first;
  f32* sums = scratch.scores;  // they are weights by now
  std::fill_n(sums, n_blocks, 0.0f);
  for (u32 i = 0; i < n; ++i) sums[(s.middle_begin + i) / n_block - first] += scratch.weights[i];
  const u32 n_chosen = args.table.top_k({.values = sums,
                                         .out = scratch.places,
                                         .scratch = scratch.radix,
                                         .n = n_blocks,
                                         .k = args.k / n_block});
  return compose_blocks(args, n_block, first, {scratch.places, n_chosen});
}

u32 choose(const SelectionArgs& args, const Scratch& scratch, const f32* values) {
  const u32 n_places = args.table.top_k({.values = values,
                                         .out = scratch.places,
                                         .scratch = scratch.radix,
                                         .n = args.segments.n_middle(),
                                         .k = args.k});
  return compose(args, scratch.places, n_places);
}

// Exact scores of the middle, in attention's own order of additions: keys of a tile as columns,
// which makes them a codebook of one sub-space.
void score_exactly(const SelectionArgs& args, const KeyPages& keys, const Scratch& scratch) {
  const u32 n = args.segments.n_middle(), d = keys.head_dim;
  f32* columns = scratch.keys + u64{kTileTokens} * d;
  for (u32 begin = 0; begin < n; begin += kTileTokens) {
    const u32 n_tile = std::min(kTileTokens, n - begin);
    keys.load(args.table, args.segments.middle_begin + begin, n_tile, scratch.keys);
    for (u32 t = 0; t < kTileTokens; ++t) {
      for (u32 i = 0; i < d; ++i) {
        columns[u64{i} * kTileTokens + t] = t < n_tile ? scratch.keys[u64{t} * d + i] : 0.0f;
      }
    }
    args.table.pq_lut({.q = args.query.q,
                       .q_stride = d,
                       .codebook = columns,
                       .lut = scratch.lut,
                       .n_heads = args.query.n_heads,
                       .n_subspaces = 1,
                       .dims = d,
                       .n_padded = kTileTokens});
    for (u32 h = 0; h < args.query.n_heads; ++h) {
      for (u32 t = 0; t < n_tile; ++t) {
        scratch.scores[u64{h} * n + begin + t] =
            scratch.lut[u64{h} * kTileTokens + t] * args.query.scale;
      }
    }
  }
}

}  // namespace

u64 selection_scratch_bytes(const SelectionShape& shape) {
  const u64 n = n_candidates(shape);
  const u64 pieces[] = {kRankBytes,
                        lut_elems(shape) * sizeof(f32),
                        key_elems(shape) * sizeof(f32),
                        shape.n_group_heads * n * sizeof(f32),
                        n * sizeof(f32),
                        n * sizeof(u32)};
  u64 sum = 0;
  for (const u64 n_bytes : pieces) sum += (n_bytes + 63) / 64 * 64;
  return sum;
}

u32 select_pq(const SelectionArgs& args, const PqIndex& index) {
  const PqShape& shape = index.shape();
  TARN_ASSERT(index.slot_begin() == args.segments.middle_begin);
  TARN_ASSERT(index.n_tokens() == args.segments.n_middle());
  const Scratch scratch = carve(args, shape_of(args, shape.head_dim, shape.lut_elems()));
  const u32 n = args.segments.n_middle();
  if (args.block_tokens > 1) {
    index.score(args.table, args.query, scratch.lut, scratch.scores, n);
    return choose_blocks(args, scratch);
  }
  if (shape.has_pairs()) {
    const u32 n_places = index.choose_by_pairs(args.table, args.query, args.k, scratch.lut,
                                               scratch.radix, scratch.places);
    return compose(args, scratch.places, n_places);
  }
  index.score(args.table, args.query, scratch.lut, scratch.scores, n);
  return choose(args, scratch, rank(args, scratch, n));
}

u32 select_oracle(const SelectionArgs& args, const KeyPages& keys) {
  const Scratch scratch = carve(args, shape_of(args, keys.head_dim, 0));
  score_exactly(args, keys, scratch);
  return choose(args, scratch, rank(args, scratch, args.segments.n_middle()));
}

u32 select_quest(const SelectionArgs& args, const QuestIndex& index) {
  constexpr u32 kPage = QuestIndex::kPageTokens;
  const Segments& s = args.segments;
  TARN_ASSERT(index.n_slots() >= s.middle_end);
  const Scratch scratch = carve(args, shape_of(args, index.head_dim(), 0));
  if (s.n_middle() == 0) return compose(args, nullptr, 0);
  const u32 first = s.middle_begin / kPage;
  const u32 n_pages = (s.middle_end + kPage - 1) / kPage - first;
  for (u32 h = 0; h < args.query.n_heads; ++h) {
    const f32* q = args.query.q + u64{h} * index.head_dim();
    for (u32 p = 0; p < n_pages; ++p) {
      scratch.scores[u64{h} * n_pages + p] = index.bound(first + p, q) * args.query.scale;
    }
  }
  const u32 n_chosen = args.table.top_k({.values = rank(args, scratch, n_pages),
                                         .out = scratch.places,
                                         .scratch = scratch.radix,
                                         .n = n_pages,
                                         .k = args.k / kPage});
  return compose_blocks(args, kPage, first, {scratch.places, n_chosen});
}

u32 select_window(const SelectionArgs& args) {
  const Segments& s = args.segments;
  u32 n_out = 0;
  append_range(0, s.middle_begin, args, n_out);
  append_range(s.middle_end - std::min(args.k, s.n_middle()), s.n_tokens, args, n_out);
  return n_out;
}

u32 select_random(const SelectionArgs& args, u64 seed) {
  const Scratch scratch = carve(args, shape_of(args, 0, 0));
  for (u32 i = 0; i < args.segments.n_middle(); ++i) {
    // 24 bits are a float exactly; the slot itself is hashed, so a token's luck is its own.
    const u64 hash = random_at(seed, args.segments.middle_begin + i);
    scratch.weights[i] = static_cast<f32>(hash >> 40);
  }
  return choose(args, scratch, scratch.weights);
}

}  // namespace tarn::method
