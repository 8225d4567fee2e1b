// kernels/rope/rope_generic.cpp: the portable body, and the one to read first.
#include "kernels/rope/rope.h"

namespace tarn::kernels {

void rope_generic(const RopeArgs& args) {
  const u32 n_pairs = args.n_rot / 2;
  const bool adjacent = args.pairs == RopePairs::adjacent;
  const u32 step = adjacent ? 2 : 1;            // between one pair's a and the next one's
  const u32 distance = adjacent ? 1 : n_pairs;  // from a to its b
  for (u32 n = 0; n < args.n_rows; ++n) {
    const f32* cos = args.cos + u64{n} * n_pairs;
    const f32* sin = args.sin + u64{n} * n_pairs;
    for (u32 h = 0; h < args.n_heads; ++h) {
      f32* head = args.x + n * args.x_stride + u64{h} * args.head_dim;
      for (u32 i = 0; i < n_pairs; ++i) {
        f32* a = head + i * step;
        f32* b = a + distance;
        const f32 turned_a = *a * cos[i] - *b * sin[i];
        const f32 turned_b = *a * sin[i] + *b * cos[i];
        *a = turned_a;
        *b = turned_b;
      }
    }
  }
}

}  // namespace tarn::kernels
