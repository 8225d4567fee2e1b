// kernels/norm/norm_generic.cpp: the portable body, and the one to read first.
#include <cmath>

#include "kernels/common/scalar.h"
#include "kernels/norm/norm.h"

namespace tarn::kernels {

void rms_norm_generic(const RmsNormArgs& args) {
  for (u32 n = 0; n < args.n_rows; ++n) {
    const f32* x = args.x + n * args.x_stride;
    f32* out = args.out + n * args.out_stride;
    f32 lanes[16] = {};
    for (u32 i = 0; i < args.d; ++i) lanes[i % 16] = fma_f32(x[i], x[i], lanes[i % 16]);
    const f32 mean = sum16(lanes) / static_cast<f32>(args.d);
    const f32 r = 1.0f / std::sqrt(mean + args.eps);
    for (u32 i = 0; i < args.d; ++i) out[i] = (x[i] * r) * args.weight[i];
  }
}

}  // namespace tarn::kernels
