#include "runtime/control/costs.h"

#include <algorithm>
#include <cmath>

#include "platform/base/assert.h"

namespace tarn::control {

Costs costs_of(const BoxConfig& box, u32 n_layers, u32 rows_max) {
  const auto seconds = [](u64 n, f64 unit_s) { return static_cast<f64>(n) * unit_s; };
  return {.n_layers = n_layers,
          .rows_max = rows_max,
          .layer_s = seconds(box.layer.layer_ns, 1e-9),
          .token_s = seconds(box.layer.token_ps, 1e-12),
          .squared_s = seconds(box.layer.squared_fs, 1e-15),
          .request_s = seconds(box.disk_request_ns, 1e-9),
          .byte_s = seconds(box.disk_byte_fs, 1e-15)};
}

f64 recompute_share(f64 least, f64 load_s, f64 prefill_s) {
  const f64 equal = prefill_s > 0 ? load_s / prefill_s : 0;
  return std::min(1.0, std::max(least, equal));
}

u32 choose_device(std::span<const StorageDevice> devices, f64 limit_s) {
  TARN_ASSERT(!devices.empty());
  const auto comes_before = [limit_s](const StorageDevice& a, const StorageDevice& b) {
    const bool a_fits = a.load_s <= limit_s, b_fits = b.load_s <= limit_s;
    if (a_fits != b_fits) return a_fits;
    return a_fits ? a.cost < b.cost : a.load_s < b.load_s;
  };
  return static_cast<u32>(std::ranges::min_element(devices, comes_before) - devices.begin());
}

u32 selection_pays_from(const BoxConfig& box) {
  if (box.decode_step_ns == 0 || box.select_step_ns == 0) return 0;
  const f64 more_ns = static_cast<f64>(box.select_step_ns) - static_cast<f64>(box.decode_step_ns);
  const f64 less_ps = static_cast<f64>(box.decode_token_ps) - static_cast<f64>(box.select_token_ps);
  if (more_ns <= 0) return less_ps >= 0 ? 1 : kNever;  // a shorter step that grows faster is no fit
  if (less_ps <= 0) return kNever;
  const f64 n = std::ceil(1e3 * more_ns / less_ps);
  return n < f64{kNever} ? static_cast<u32>(n) : kNever;
}

SelectConfig resolved(SelectConfig config, const BoxConfig& box) {
  config.cost = box.layer;
  config.context_from = selection_pays_from(box);
  return config;
}

}  // namespace tarn::control
