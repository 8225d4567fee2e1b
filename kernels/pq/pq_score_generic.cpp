// kernels/pq/pq_score_generic.cpp: the portable bodies, and the ones to read first.
#include "kernels/common/scalar.h"
#include "kernels/pq/pq_score.h"

namespace tarn::kernels {

void pq_lut_generic(const PqLutArgs& args) {
  for (u32 h = 0; h < args.n_heads; ++h) {
    for (u32 m = 0; m < args.n_subspaces; ++m) {
      const f32* q = args.q + h * args.q_stride + u64{m} * args.dims;
      const f32* centroids = args.codebook + u64{m} * args.dims * args.n_padded;
      f32* lut = args.lut + (u64{h} * args.n_subspaces + m) * args.n_padded;
      for (u32 c = 0; c < args.n_padded; ++c) lut[c] = 0.0f;
      for (u32 i = 0; i < args.dims; ++i) {
        for (u32 c = 0; c < args.n_padded; ++c)
          lut[c] = fma_f32(q[i], centroids[i * args.n_padded + c], lut[c]);
      }
    }
  }
}

void pq_score_generic(const PqScoreArgs& args) {
  for (u32 h = 0; h < args.n_heads; ++h) {
    const f32* lut = args.lut + u64{h} * args.n_subspaces * args.n_padded;
    f32* scores = args.scores + h * args.scores_stride;
    for (u32 t = 0; t < args.n_tokens; ++t) {
      f32 sum = lut[pq_code_get(args.format, args.codes, t)];
      for (u32 m = 1; m < args.n_subspaces; ++m) {
        const u8* row = args.codes + m * args.codes_stride;
        sum += lut[u64{m} * args.n_padded + pq_code_get(args.format, row, t)];
      }
      scores[t] = sum * args.scale;
    }
  }
}

void pq_weigh_generic(const PqWeighArgs& args) {
  for (u32 h = 0; h < args.n_heads; ++h) {
    f32* p = args.scores + h * args.scores_stride;
    f32 max = -__builtin_inff();
    for (u32 t = 0; t < args.n_tokens; ++t) max = p[t] > max ? p[t] : max;
    f32 lanes[16] = {};
    for (u32 t = 0; t < args.n_tokens; ++t) {
      p[t] = exp_f32(p[t] - max);
      lanes[t % 16] += p[t];
    }
    const f32 factor = 1.0f / sum16(lanes);
    for (u32 t = 0; t < args.n_tokens; ++t) {
      const f32 weight = p[t] * factor;
      args.weights[t] = h == 0 ? weight : args.weights[t] + weight;
    }
  }
}

}  // namespace tarn::kernels
