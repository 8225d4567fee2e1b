#include "kernels/act/act_vector.h"
#include "kernels/common/f32x_avx512.h"

namespace tarn::kernels {

void swiglu_avx512(const SwigluArgs& args) { ActVector<F32x>::swiglu(args); }
void add_avx512(const AddArgs& args) { ActVector<F32x>::add(args); }
void exp_avx512(const ExpArgs& args) { ActVector<F32x>::exponential(args); }

}  // namespace tarn::kernels
