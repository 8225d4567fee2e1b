#include "runtime/method/select_layout.h"

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

}  // namespace

SelectShape select_shape(const model::ModelSpec& spec, const SelectConfig& select,
                         const SelectInputs& in) {
  const u32 context_tokens = in.context_tokens;
  SelectShape shape{.in = in};
  if (select.is_full()) return shape;
  const u32 d = spec.head_dim;
  const u32 n_group_heads = spec.n_heads / spec.n_kv_heads;
  const Method& method = method_of(select);
  const Training* const training = method.training;
  const KeyDims keys{spec.head_dim, spec.adjacent_dims()};
  TrainNeeds needs{.scratch_bytes = d * sizeof(f32)};
  if (training != nullptr) needs = training->needs(select, keys, context_tokens);

  shape.n_heads = spec.n_cache_layers * spec.n_kv_heads;
  shape.n_sets = in.sessions_max + (training != nullptr ? 1 : 0);
  shape.reader_bytes = align_up(method.reader_bytes, kAlignment);
  if (method.region_bytes != nullptr) {
    shape.index_bytes = method.region_bytes(select, keys, context_tokens);
  }
  shape.codes = needs.codes;
  shape.n_chosen_max = chosen_max(select, context_tokens);
  shape.n_train_parts = needs.n_parts;
  shape.train_bytes = align_up(needs.scratch_bytes, kAlignment);
  shape.n_sample = std::min(needs.sample_rows_max, context_tokens);
  shape.sample_bytes = align_up(u64{shape.n_sample} * in.group.vector_bytes, kAlignment);
  shape.n_pairs = needs.n_pairs;
  shape.codebook_bytes = needs.saved_bytes <= store::kPayloadBytesMax ? needs.saved_bytes : 0;
  if (in.place == KvPlace::gpu) return shape;

  shape.search_bytes = align_up(selection_scratch_bytes({.n_group_heads = n_group_heads,
                                                         .lut_elems = needs.lut_elems,
                                                         .middle_tokens_max = context_tokens}),
                                kAlignment);
  shape.state_bytes = align_up(kernels::attn_state_bytes(d, n_group_heads), kAlignment);

  if (in.place == KvPlace::tiers && shape.n_pairs > 0) {
    shape.search_bytes =
        std::max(shape.search_bytes, training->order_scratch_bytes(shape.n_chosen_max));
  }
  return shape;
}

}  // namespace tarn::method
