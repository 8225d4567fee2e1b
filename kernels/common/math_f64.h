// exp and ln in f64 without libm, because libm has variants for each CPU. Relative error < 4e-16
// (exp) and 4e-16 (ln, absolute near 1). Plain functions, built without ISA flags.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

// exp(-inf) = 0, NaN stays NaN, overflow gives inf, subnormal results are rounded once.
f64 exp_f64(f64 x);

// For finite x >= 2^-1022.
f64 log_f64(f64 x);

}  // namespace tarn::kernels
