#include "runtime/method/select_layout.h"

#include "runtime/kv/extents.h"
#include "runtime/kv/slot_cache.h"
#include "runtime/method/pq/codebook_record.h"
#include "runtime/method/pq/pair_order.h"
#include "runtime/method/pq/pq_index.h"

#include <algorithm>

namespace tarn::method {
namespace {

constexpr u64 kAlignment = 64;

// Sinks, local window and chosen slots of one head.
u32 chosen_max(const SelectConfig& config, u32 context_tokens) {
  const Budget most = budget(budget_rule(config), context_tokens);
  const u64 both = std::max(u64{most.n_local} + most.k, u64{config.tokens_min} + 1);
  const u64 n =
      config.n_sinks + (config.context_divisor == 0 ? u64{config.n_local} + config.k : both);
  return static_cast<u32>(std::min<u64>(n, context_tokens));
}

// What the orders of a head's extent are chosen in, where each slot is wanted of another pair.
u64 order_bytes(u64 n_slots) {
  return align_up(n_slots * sizeof(WantedPair), kAlignment) +
         align_up((n_slots + 1) * sizeof(u32), kAlignment) +
         align_up(n_slots * sizeof(u32), kAlignment) +
         align_up(n_slots * sizeof(kv::ExtentWant), kAlignment);
}

DeviceCodes device_codes(const PqShape& pq) {
  const PqLayout at = pq_layout(pq);
  return {.format = pq.format,
          .n_subspaces = pq.n_subspaces,
          .dims = pq.dims(),
          .adjacent_dims = pq.adjacent_dims,
          .n_padded = pq.n_padded(),
          .capacity_tokens = pq.capacity_tokens,
          .head_bytes = at.bytes,
          .half_norms_at = at.half_norms,
          .codes_at = at.codes,
          .counts_at = pq.has_pairs() ? at.counts : 0};
}

}  // namespace

Result<void> select_check(const model::ModelSpec& spec, const SelectConfig& select) {
  if (!method_of(select).is_trained || spec.head_dim % select.n_subspaces == 0) return {};
  return fail({.status = Status::invalid_config,
               .hint = "a key's parts are equal: set select.subspaces to a divisor of head_dim",
               .detail = Detail("select.subspaces"),
               .figures = {{{"head_dim", spec.head_dim}, {"subspaces", select.n_subspaces}}}});
}

SelectShape select_shape(const model::ModelSpec& spec, const SelectConfig& select,
                         const SelectInputs& in) {
  const u32 context_tokens = in.context_tokens;
  SelectShape shape{.in = in};
  if (select.is_full()) return shape;
  const u32 d = spec.head_dim;
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  const Method& method = method_of(select);
  const bool is_trained = method.is_trained;
  const KeyDims keys{spec.head_dim, spec.adjacent_dims()};
  const PqShape pq = pq_shape(select, keys, context_tokens);

  shape.n_heads = spec.n_cache_layers * spec.n_kv_heads;
  shape.n_sets = in.sessions_max + (is_trained ? 1 : 0);
  shape.reader_bytes = align_up(method.reader_bytes, kAlignment);
  if (method.region_bytes != nullptr) {
    shape.index_bytes = method.region_bytes(select, keys, context_tokens);
  }
  if (is_trained) shape.codes = device_codes(pq);
  shape.n_chosen_max = chosen_max(select, context_tokens);
  shape.train_bytes =
      align_up(is_trained ? pq_train_scratch_bytes(pq) : d * sizeof(f32), kAlignment);
  if (is_trained) shape.n_sample = pq_n_sample(pq, context_tokens);
  shape.sample_bytes = align_up(u64{shape.n_sample} * in.group.vector_bytes, kAlignment);
  if (is_trained && pq.has_pairs()) {
    const u64 bytes = codebook_record_bytes(pq, context_tokens, kv::kExtentOrdersMax);
    shape.n_pairs = pq.n_padded() * pq.n_padded();
    shape.codebook_bytes = bytes <= store::kPayloadBytesMax ? bytes : 0;
  }
  if (in.place == KvPlace::gpu) return shape;

  shape.search_bytes =
      align_up(selection_scratch_bytes({.n_group_heads = n_group_heads,
                                        .lut_elems = is_trained ? pq.lut_elems() : 0,
                                        .middle_tokens_max = context_tokens}),
               kAlignment);
  shape.state_bytes = align_up(kernels::attn_state_bytes(d, n_group_heads), kAlignment);

  if (in.place == KvPlace::tiers && pq.has_pairs()) {
    shape.search_bytes = std::max(shape.search_bytes, order_bytes(shape.n_chosen_max));
  }
  return shape;
}

}  // namespace tarn::method
