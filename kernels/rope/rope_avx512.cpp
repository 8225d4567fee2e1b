#include "kernels/common/f32x_avx512.h"
#include "kernels/rope/rope_vector.h"

namespace tarn::kernels {

void rope_avx512(const RopeArgs& args) { RopeVector<F32x>::rope(args); }

}  // namespace tarn::kernels
