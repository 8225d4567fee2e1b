// How much of an exact choice an index of codes finds, for measurements (tarn-bench --recall). The
// index is built as at its first use: from the rows that are in the middle now.
#include <algorithm>
#include <iterator>
#include <limits>
#include <vector>

#include "platform/base/assert.h"
#include "runtime/lab/methods.h"
#include "runtime/lab/probe.h"
#include "runtime/method/pq/iterations.h"
#include "runtime/method/pq/pq_index.h"

namespace tarn::lab {
namespace {

using method::KeyPages;
using method::PqIndex;
using method::PqShape;

// Memory that begins at a cache line.
struct alignas(64) Line {
  std::byte bytes[64];
};
std::vector<Line> lines(u64 n_bytes) { return std::vector<Line>(n_bytes / sizeof(Line) + 1); }

// The slots that are clustered, as pages of one.
void sample_rows(const KeyPages& keys, const method::TokenRanges& ranges, u64 slot_bytes,
                 std::span<const u8*> out) {
  const u32 n = static_cast<u32>(out.size());
  for (u32 i = 0; i < n; ++i) {
    const u32 row = method::sample_row(i, n, ranges.n_middle());
    const u32 slot = ranges.middle_begin + row;
    out[i] = keys.pages[slot / keys.page_tokens] + slot % keys.page_tokens * slot_bytes;
  }
}

}  // namespace

ClusterWork cluster_work(const SelectConfig& config, u32 n_rows) {
  return {.n_sampled = method::pq_n_sample({.code_bits = config.code_bits}, n_rows),
          .n_updates = method::iterations(config, n_rows)};
}

f64 Probe::recall(const RecallArgs& args) const {
  TARN_ASSERT(!engine_.kv_.cache().has_tiers() && !engine_.status_.on_gpu);
  const model::ModelSpec& spec = engine_.opened_.model.spec;
  const plan::Plan& plan = engine_.opened_.plan;
  const SelectConfig& config = engine_.opened_.select;
  const kernels::CpuTable& table = *engine_.opened_.table;
  const kv::Sequence& sequence = engine_.opened_.sessions[args.session].sequence;
  const method::Budget budget = method::budget(method::budget_rule(config), sequence.n_slots());
  const method::TokenRanges ranges =
      method::token_ranges(sequence.n_slots(), config.n_sinks, budget.n_local);
  if (ranges.n_middle() <= std::max(budget.k, 8u << config.code_bits)) {
    return std::numeric_limits<f64>::quiet_NaN();
  }
  const u32 n_slots_max = plan.context_tokens;
  const PqShape shape =
      method::pq_shape(config, {spec.head_dim, spec.adjacent_dims()}, n_slots_max);
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  std::vector<Line> region = lines(method::pq_layout(shape).bytes);
  std::vector<Line> train = lines(method::pq_train_scratch_bytes(shape));
  std::vector<Line> search =
      lines(method::selection_scratch_bytes({.n_group_heads = n_group_heads,
                                             .lut_elems = shape.lut_elems(),
                                             .middle_tokens_max = n_slots_max}));
  std::vector<u32> exact(n_slots_max), coded(n_slots_max);
  std::vector<const u8*> sample(method::pq_n_sample(shape, ranges.n_middle()));
  std::vector<const u8*> pages(plan.pages_max);
  sequence.pages(args.cache_layer, args.kv_head, 0, sequence.n_groups(), pages);
  const KeyPages keys{engine_.opened_.kv_type, pages.data(), plan.group_shape.page_tokens,
                      spec.head_dim};
  sample_rows(keys, ranges, u64{2} * plan.group_shape.vector_bytes, sample);
  const KeyPages sampled{engine_.opened_.kv_type, sample.data(), 1, spec.head_dim};

  PqIndex index;
  index.init(shape, std::as_writable_bytes(std::span(region)));
  index.start(ranges.middle_begin);
  index.begin_codebook(ranges.n_middle());
  const u32 n_updates = method::iterations(config, ranges.n_middle());
  for (u32 subspace = 0; subspace < shape.n_subspaces; ++subspace) {
    index.train({table, sampled, 0, subspace, n_updates, std::as_writable_bytes(std::span(train))});
    index.code({table, keys, subspace, ranges.middle_begin, ranges.middle_end,
                std::as_writable_bytes(std::span(train))});
  }
  index.end_codebook();

  const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(spec.head_dim));
  const auto search_into = [&](std::span<u32> slots) {
    return method::SelectionArgs{table,
                                 {args.q, n_group_heads, scale},
                                 ranges,
                                 budget.k,
                                 std::as_writable_bytes(std::span(search)),
                                 slots};
  };
  const u32 n_exact = select_oracle(search_into(exact), keys);
  const u32 n_coded = index.choose(search_into(coded));
  std::vector<u32> both;
  std::ranges::set_intersection(std::span(exact).first(n_exact), std::span(coded).first(n_coded),
                                std::back_inserter(both));
  const u32 n_always = ranges.n_sinks() + ranges.n_local();
  return static_cast<f64>(both.size() - n_always) / static_cast<f64>(n_exact - n_always);
}

}  // namespace tarn::lab
