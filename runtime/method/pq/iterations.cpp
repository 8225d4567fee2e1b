#include "runtime/method/pq/iterations.h"

#include "platform/base/assert.h"
#include "runtime/method/pq/pq_index.h"

namespace tarn::method {

// In f64: sums, products and a quotient, each rounded as IEEE 754 says, are the same everywhere.
u32 iterations_max(const LayerCost& cost, u32 n_rows, u32 n_sampled) {
  TARN_ASSERT(cost.update_ps > 0 && n_sampled > 0);
  const f64 s = n_rows;
  const f64 prefill_ns = static_cast<f64>(cost.layer_ns) +
                         static_cast<f64>(cost.token_ps) * s / 1e3 +
                         static_cast<f64>(cost.squared_fs) * s * s / 1e6;
  const f64 fixed_ns = static_cast<f64>(cost.job_ns) + static_cast<f64>(cost.row_ps) * s / 1e3;
  const f64 update_ns = static_cast<f64>(cost.update_ps) * n_sampled / 1e3;
  const f64 n = (prefill_ns * cost.share_percent / 100 - fixed_ns) / update_ns;
  return static_cast<u32>(std::clamp(n, f64{kIterationsMin}, f64{kIterationsMax}));
}

u32 iterations(const SelectConfig& config, u32 n_rows) {
  if (config.iterations != 0) return config.iterations;
  return iterations_max(config.cost, n_rows, pq_n_sample({.code_bits = config.code_bits}, n_rows));
}

}  // namespace tarn::method
