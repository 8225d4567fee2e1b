// How much of an exact choice an index of codes finds, for measurements (tarn-bench --recall). The
// index is made anew, as a session's is at its first use: from the rows that are in the middle now.
#include <algorithm>
#include <limits>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/engine/engine.h"
#include "runtime/engine/take.h"
#include "runtime/select/iterations.h"
#include "runtime/select/select_shape.h"

namespace tarn::engine {
namespace {

using select::KeyPages;
using select::PqIndex;
using select::PqShape;

// The slots that are clustered, as pages of one.
void sample_rows(const KeyPages& keys, const select::Segments& segments, u64 slot_bytes,
                 std::span<const u8*> out) {
  const u32 n = static_cast<u32>(out.size());
  for (u32 i = 0; i < n; ++i) {
    const u32 row = PqIndex::sample_row(i, n, segments.n_middle());
    const u32 slot = segments.middle_begin + row;
    out[i] = keys.pages[slot / keys.page_tokens] + slot % keys.page_tokens * slot_bytes;
  }
}

u64 count_both(std::span<const u32> a, std::span<const u32> b) {
  u64 n = 0;
  for (const u32* at = b.data(); const u32 slot : a) {
    while (at != b.data() + b.size() && *at < slot) ++at;
    if (at != b.data() + b.size() && *at == slot) ++n;
  }
  return n;
}

}  // namespace

Engine::ClusterWork Engine::cluster_work(const SelectConfig& config, u32 n_rows) {
  return {.n_sampled = PqIndex::n_sample({.code_bits = config.code_bits}, n_rows),
          .n_updates = select::iterations(config, n_rows)};
}

u64 Engine::recall_scratch_bytes() const {
  const u32 n = plan_.context_tokens;
  const PqShape shape =
      select::pq_shape(select_config_, {spec_.head_dim, spec_.adjacent_dims()}, n);
  const u64 pieces[] = {
      PqIndex::region_bytes(shape),
      PqIndex::train_scratch_bytes(shape),
      select::selection_scratch_bytes({.n_group_heads = spec_.n_heads / spec_.n_kv_heads,
                                       .head_dim = spec_.head_dim,
                                       .lut_elems = shape.lut_elems(),
                                       .middle_tokens_max = n}),
      2 * u64{n} * sizeof(u32),
      u64{PqIndex::n_sample(shape, n)} * sizeof(const u8*),
      u64{plan_.pages_max} * sizeof(const u8*)};
  u64 sum = 0;
  for (const u64 bytes : pieces) sum += align_up(bytes, kTakeAlignment) + 2 * kTakeAlignment;
  return sum;
}

f64 Engine::recall(const RecallArgs& args) const {
  TARN_ASSERT(!kv_stream_.is_on() && !on_gpu());
  const kv::Sequence& sequence = sessions_[args.session].sequence;
  const select::Budget budget =
      select::budget(select::budget_rule(select_config_), sequence.n_slots());
  const select::Segments segments =
      select::segments(sequence.n_slots(), select_config_.n_sinks, budget.n_local);
  if (segments.n_middle() <= std::max(budget.k, 8u << select_config_.code_bits)) {
    return std::numeric_limits<f64>::quiet_NaN();
  }
  const PqShape shape = select::pq_shape(select_config_, {spec_.head_dim, spec_.adjacent_dims()},
                                         plan_.context_tokens);
  const u32 n_group_heads = spec_.n_heads / spec_.n_kv_heads;
  Bump bump(args.scratch);
  const auto region = take<std::byte>(bump, PqIndex::region_bytes(shape));
  const auto train = take<std::byte>(bump, PqIndex::train_scratch_bytes(shape));
  const auto search = take<std::byte>(
      bump, select::selection_scratch_bytes({.n_group_heads = n_group_heads,
                                             .head_dim = spec_.head_dim,
                                             .lut_elems = shape.lut_elems(),
                                             .middle_tokens_max = plan_.context_tokens}));
  const auto exact = take<u32>(bump, plan_.context_tokens);
  const auto coded = take<u32>(bump, plan_.context_tokens);
  const auto sample = take<const u8*>(bump, PqIndex::n_sample(shape, segments.n_middle()));
  const auto pages = take<const u8*>(bump, plan_.pages_max);
  sequence.pages(args.cache_layer, args.kv_head, pages);
  const KeyPages keys{args.kv_type, pages.data(), plan_.group_shape.page_tokens, spec_.head_dim};
  sample_rows(keys, segments, u64{2} * plan_.group_shape.vector_bytes, sample);
  const KeyPages sampled{args.kv_type, sample.data(), 1, spec_.head_dim};

  PqIndex index;
  index.init(shape, region);
  index.start(segments.middle_begin);
  index.begin_codebook(segments.n_middle());
  const u32 n_updates = select::iterations(select_config_, segments.n_middle());
  for (u32 subspace = 0; subspace < shape.n_subspaces; ++subspace) {
    index.train({*table_, sampled, 0, subspace, n_updates, train});
    index.code({*table_, keys, subspace, segments.middle_begin, segments.middle_end, train});
  }
  index.end_codebook();

  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec_.head_dim));
  const auto search_into = [&](std::span<u32> slots) {
    return select::SelectionArgs{
        *table_, {args.q, n_group_heads, scale}, segments, budget.k, search, slots};
  };
  const u32 n_exact = select::select_oracle(search_into(exact), keys);
  select::SelectionArgs in_blocks = search_into(coded);
  in_blocks.block_tokens = select_config_.block_tokens;
  const u32 n_coded = select::select_pq(in_blocks, index);
  const u64 n_both = count_both(exact.first(n_exact), coded.first(n_coded));
  const u32 n_always = segments.n_sinks() + segments.n_local();
  return static_cast<f64>(n_both - n_always) / static_cast<f64>(n_exact - n_always);
}

}  // namespace tarn::engine
