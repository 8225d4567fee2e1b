// kernels/pq/pq_pairs_generic.cpp: one pair and one token at a time.
#include <limits>

#include "kernels/common/scalar.h"
#include "kernels/pq/pq_pairs_body.h"

namespace tarn::kernels {
namespace {

struct Scalar : Singly {
  static void weigh_pairs(const PqPairsArgs& args, f32* scores, f32* weights) {
    const u32 side = args.side, n = side * side;
    for (u32 h = 0; h < args.n_heads; ++h) {
      const f32* lut = args.lut + u64{h} * 2 * side;
      f32 max = -std::numeric_limits<f32>::infinity();
      for (u32 i = 0; i < n; ++i) {
        const f32 score = (lut[i / side] + lut[side + i % side]) * args.scale;
        scores[i] = args.counts[i] != 0 ? score : -std::numeric_limits<f32>::infinity();
        max = scores[i] > max ? scores[i] : max;
      }
      if (args.n_heads == 1) {
        for (u32 i = 0; i < n; ++i) weights[i] = scores[i];
        return;
      }
      f32 lanes[16] = {};
      for (u32 i = 0; i < n; ++i) {
        scores[i] = exp_f32(scores[i] - max);
        lanes[i % 16] = lanes[i % 16] + static_cast<f32>(args.counts[i]) * scores[i];
      }
      const f32 factor = 1.0f / sum16(lanes);
      for (u32 i = 0; i < n; ++i) {
        const f32 weight = scores[i] * factor;
        weights[i] = h == 0 ? weight : weights[i] + weight;
      }
    }
  }
};

}  // namespace

u32 pq_pairs_generic(const PqPairsArgs& args) { return choose_by_pairs<Scalar>(args); }

}  // namespace tarn::kernels
