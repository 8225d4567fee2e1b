#include "runtime/method/compute/row_choice.h"

#include <cmath>
#include <numeric>

#include "platform/base/assert.h"

namespace tarn::method {

u32 choose_rows(std::span<const Chunk> chunks, std::span<const f32> deviation, std::span<u32> order,
                std::span<bool> is_chosen) {
  TARN_ASSERT(!chunks.empty());
  std::fill(is_chosen.begin() + chunks.front().begin, is_chosen.begin() + chunks.back().end, true);
  u32 n = 0;
  for (const Chunk& chunk : chunks) {
    std::fill(is_chosen.begin() + chunk.begin, is_chosen.begin() + chunk.end, false);
    std::iota(order.begin() + n, order.begin() + n + chunk.n_tokens(), chunk.begin);
    n += chunk.n_tokens();
  }
  const f64 share = std::clamp(f64{chunks.front().recompute}, 0.0, 1.0);
  const u32 n_chosen = static_cast<u32>(std::floor(share * n));
  const auto size = [&](u32 token) {
    return std::isnan(deviation[token]) ? HUGE_VALF : deviation[token];
  };
  std::nth_element(order.begin(), order.begin() + n_chosen, order.begin() + n,
                   [&](u32 a, u32 b) { return size(a) != size(b) ? size(a) > size(b) : a < b; });
  for (const u32 token : order.first(n_chosen)) is_chosen[token] = true;
  return n_chosen;
}

}  // namespace tarn::method
