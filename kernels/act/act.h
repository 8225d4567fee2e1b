// The element-wise operations of a layer, and the exponential that they share with attention.
//
//   swiglu    out[i] = (gate[i] / (1 + exp(-gate[i]))) * up[i]    (Shazeer 2020, arXiv:2002.05202)
//             |error| <= 4 * eps * |out| + 2^-121 * |up[i]|, where exp(-gate) passes 2^127.5
//   add       x[i] = x[i] + y[i]
//
// exp is our own, in f32 with FMA (kernels/common/exp_f32.h): n = round(x * log2 e); r = x -
// n*ln2_hi - n*ln2_lo; a degree-6 polynomial; times 2^n. <= 2 ulp between 2^-126.5 and 2^127.5;
// below 0, above inf; NaN stays NaN. The same bits on every ISA.
#pragma once

#include "kernels/common/exp_f32.h"

namespace tarn::kernels {

struct SwigluArgs {
  const f32* gate;  // [n]
  const f32* up;    // [n]
  f32* out;         // [n]; may be gate or up
  u64 n;
};
using SwigluFn = void (*)(const SwigluArgs& args);
void swiglu_generic(const SwigluArgs& args);
void swiglu_avx2(const SwigluArgs& args);
void swiglu_avx512(const SwigluArgs& args);

struct AddArgs {
  f32* x;        // [n], in and out
  const f32* y;  // [n]
  u64 n;
};
using AddFn = void (*)(const AddArgs& args);
void add_generic(const AddArgs& args);
void add_avx2(const AddArgs& args);
void add_avx512(const AddArgs& args);

// For tests and for the sampler.
void exp_generic(const ExpArgs& args);
void exp_avx2(const ExpArgs& args);
void exp_avx512(const ExpArgs& args);

}  // namespace tarn::kernels
