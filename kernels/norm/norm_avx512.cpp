#include "kernels/common/f32x_avx512.h"
#include "kernels/norm/norm_vector.h"

namespace tarn::kernels {

void rms_norm_avx512(const RmsNormArgs& args) { NormVector<F32x>::rms_norm(args); }

}  // namespace tarn::kernels
