#include "kernels/act/act_vector.h"
#include "kernels/common/f32x_avx2.h"

namespace tarn::kernels {

void swiglu_avx2(const SwigluArgs& args) { ActVector<F32x>::swiglu(args); }
void add_avx2(const AddArgs& args) { ActVector<F32x>::add(args); }
void exp_avx2(const ExpArgs& args) { ActVector<F32x>::exponential(args); }

}  // namespace tarn::kernels
