// What the configuration's selection means to the parts of runtime/method.
#pragma once

#include "runtime/config/select_config.h"
#include "runtime/method/pq_index.h"
#include "runtime/method/token_ranges.h"

namespace tarn::method {

static_assert(kSubspacesMax == kernels::kPqSubspacesMax);
static_assert(kPackedCodeBitsMax == kernels::pq_bits_max(kernels::PqCodeFormat::packed6));

// Raised when the same settings choose otherwise than before: another life, cut, clustering or
// choice. What was kept or verified with another one is not believed.
inline constexpr u64 kSelectionId = 2;

// Where reading by selection begins to be faster than reading everything: at twice what it reads.
inline u32 context_min(const SelectConfig& config) {
  if (config.context_min != 0 || config.context_divisor != 0) return config.context_min;
  return 2 * (config.n_sinks + config.n_local + config.k);
}

inline BudgetRule budget_rule(const SelectConfig& config) {
  return {.context_divisor = config.context_divisor,
          .tokens_min = config.tokens_min,
          .n_sinks = config.n_sinks,
          .n_local = config.n_local,
          .k = config.k,
          .context_min = context_min(config)};
}

// Of the index of one KV head; head_dim must be a multiple of n_subspaces.
inline PqShape pq_shape(const SelectConfig& config, const KeyDims& keys, u32 capacity_tokens) {
  return {.head_dim = keys.head_dim,
          .adjacent_dims = keys.adjacent_dims,
          .n_subspaces = config.n_subspaces,
          .code_bits = config.code_bits,
          .format = config.code_format == CodeFormat::bytes
                        ? kernels::PqCodeFormat::bytes
                        : kernels::pq_least_format(config.code_bits),
          .capacity_tokens = capacity_tokens,
          .control = config.control};
}

}  // namespace tarn::method
