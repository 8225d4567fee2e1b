// kernels/act/act_generic.cpp: the portable bodies, and the ones to read first.
#include "kernels/act/act.h"

#include "kernels/common/scalar.h"

namespace tarn::kernels {

void swiglu_generic(const SwigluArgs& args) {
  for (u64 i = 0; i < args.n; ++i) {
    const f32 gate = args.gate[i];
    args.out[i] = (gate / (1.0f + exp_f32(-gate))) * args.up[i];
  }
}

void add_generic(const AddArgs& args) {
  for (u64 i = 0; i < args.n; ++i) args.x[i] = args.x[i] + args.y[i];
}

void exp_generic(const ExpArgs& args) {
  for (u64 i = 0; i < args.n; ++i) args.out[i] = exp_f32(args.x[i]);
}

}  // namespace tarn::kernels
