#include "runtime/method/read/random.h"

#include <algorithm>

#include "platform/base/assert.h"

namespace tarn::method {

u32 select_random(const SelectionArgs& args, u64 seed) {
  const SelectionScratch scratch = carve_selection(args, selection_shape(args, 0, 0));
  for (u32 i = 0; i < args.ranges.n_middle(); ++i) {
    // 24 bits are a float exactly; the slot itself is hashed, so a token's luck is its own.
    const u64 hash = random_at(seed, args.ranges.middle_begin + i);
    scratch.weights[i] = static_cast<f32>(hash >> 40);
  }
  return choose_best(args, scratch, scratch.weights);
}

}  // namespace tarn::method
