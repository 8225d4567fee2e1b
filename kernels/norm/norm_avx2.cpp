#include "kernels/common/f32x_avx2.h"
#include "kernels/norm/norm_vector.h"

namespace tarn::kernels {

void rms_norm_avx2(const RmsNormArgs& args) { NormVector<F32x>::rms_norm(args); }

}  // namespace tarn::kernels
