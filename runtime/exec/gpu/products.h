// Products of rows and weights on a GPU, and the quantised form of rows that they read.
//
//   bits    a row's do not depend on what runs beside it: up to 8 rows by matvec, more of quantised
//           weights by matmat, which has its bits; of f16, 8 rows at a time
//   fused   an op whose rows a product of quantised weights reads next leaves them quantised too
#pragma once

#include <span>
#include <utility>

#include "runtime/exec/backend.h"
#include "runtime/exec/gpu/step.h"

namespace tarn::exec {

class GpuProducts {
 public:
  explicit GpuProducts(GpuStep* step) : step_(*step) {}

  // Returns where an op that writes rows of k elements at x leaves their quantised form as well, if
  // a product may want it. Every op that writes rows forgets the one before.
  kernels::GpuQuantized acts_for(Rows x, u64 k);
  void forget_acts() { quantized_ = nullptr; }
  void multiply(Rows x, u32 n, std::span<const Projection> projections, kernels::Store store);
  // Counts n more bytes of weights.
  void count(u64 n) { weight_bytes_ += n; }
  // Returns how many were read since the last call.
  u64 take_weight_bytes() { return std::exchange(weight_bytes_, 0); }

 private:
  void quantize(Rows x, u32 k, u32 n);

  GpuStep& step_;
  const f32* quantized_ = nullptr;  // the rows whose quantised form is in acts; nullptr: none
  u64 weight_bytes_ = 0;
};

}  // namespace tarn::exec
