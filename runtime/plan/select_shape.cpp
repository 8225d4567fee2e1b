#include "runtime/plan/select_shape.h"

#include "runtime/kv/extents.h"
#include "runtime/kv/slot_cache.h"
#include "runtime/method/pair_order.h"
#include "runtime/plan/kv_type.h"

#include <algorithm>

namespace tarn::plan {
namespace {

constexpr u64 kAlignment = 64;

// Sinks, local window and chosen slots of one head.
u32 chosen_max(const SelectConfig& config, u32 context_tokens) {
  const method::Budget budget = method::budget(method::budget_rule(config), context_tokens);
  const u64 both = std::max(u64{budget.n_local} + budget.k, u64{config.tokens_min} + 1);
  const u64 n =
      config.n_sinks + (config.context_divisor == 0 ? u64{config.n_local} + config.k : both);
  return static_cast<u32>(std::min<u64>(n, context_tokens));
}

// What the orders of a head's extent are chosen in, where each slot is wanted of another pair.
u64 order_bytes(u64 n_slots) {
  return align_up(n_slots * sizeof(method::WantedPair), kAlignment) +
         align_up((n_slots + 1) * sizeof(u32), kAlignment) +
         align_up(n_slots * sizeof(u32), kAlignment) +
         align_up(n_slots * sizeof(kv::ExtentWant), kAlignment);
}

}  // namespace

SelectShape select_shape(const model::ModelSpec& spec, const Config& config, u32 context_tokens,
                         KvPlace place) {
  const SelectConfig& select = config.select;
  SelectShape shape;
  if (select.is_full()) return shape;
  const u32 d = spec.head_dim;
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  const bool is_pq = select.method == SelectMethod::pq;
  const method::KeyDims keys{spec.head_dim, spec.adjacent_dims()};
  const method::PqShape pq = method::pq_shape(select, keys, context_tokens);

  shape.n_heads = spec.n_cache_layers * spec.n_kv_heads;
  shape.n_sets = config.sessions_max + (is_pq ? 1 : 0);
  shape.index_bytes = method::HeadIndex::region_bytes(select, keys, context_tokens);
  shape.set_bytes = align_up(shape.n_heads * sizeof(method::HeadIndex), kAlignment) +
                    shape.n_heads * shape.index_bytes;
  shape.n_chosen_max = chosen_max(select, context_tokens);
  shape.train_bytes =
      align_up(is_pq ? method::PqIndex::train_scratch_bytes(pq) : d * sizeof(f32), kAlignment);
  shape.pages_bytes =
      align_up(ceil_div(context_tokens, config.page_tokens) * sizeof(u8*), kAlignment);
  const u64 vector_bytes = kernels::kv_vector_bytes(kv_type(config), d);
  if (is_pq) shape.n_sample = method::PqIndex::n_sample(pq, context_tokens);
  shape.sample_bytes = align_up(shape.n_sample * vector_bytes, kAlignment) * spec.n_kv_heads;
  shape.shared_bytes = shape.sample_bytes;
  if (place == KvPlace::gpu) return shape;

  shape.search_bytes =
      align_up(method::selection_scratch_bytes({.n_group_heads = n_group_heads,
                                                .head_dim = d,
                                                .lut_elems = is_pq ? pq.lut_elems() : 0,
                                                .middle_tokens_max = context_tokens}),
               kAlignment);
  shape.slots_bytes = align_up(u64{context_tokens} * sizeof(u32), kAlignment);
  const u64 gather_pages = ceil_div(kGatherTokens, config.page_tokens);
  shape.gather_bytes =
      align_up(gather_pages * config.page_tokens * 2 * vector_bytes + gather_pages * sizeof(u8*),
               kAlignment);
  shape.state_bytes = align_up(kernels::attn_state_bytes(d, n_group_heads), kAlignment);

  if (place == KvPlace::tiers) {
    if (pq.has_pairs()) {
      shape.search_bytes = std::max(shape.search_bytes, order_bytes(shape.n_chosen_max));
    }
    const u64 n_slots = align_up(shape.n_chosen_max, config.page_tokens);
    shape.fetched_bytes = align_up(n_slots * 2 * vector_bytes, kAlignment) +
                          align_up(n_slots / config.page_tokens * sizeof(u8*), kAlignment) +
                          align_up(shape.n_chosen_max * sizeof(u32), kAlignment) +
                          2 * align_up(shape.n_chosen_max * sizeof(kv::WantedSlot), kAlignment) +
                          align_up(shape.n_chosen_max * sizeof(kv::SlotCache::Found), kAlignment) +
                          align_up(shape.n_chosen_max * sizeof(kv::ExtentWant), kAlignment);
    const u64 layer_bytes =
        spec.n_kv_heads * shape.fetched_bytes + fetch_table_bytes(spec.n_kv_heads);
    shape.shared_bytes = std::max(shape.sample_bytes, layer_bytes);
  }
  return shape;
}

}  // namespace tarn::plan
