// f16 (IEEE binary16) and bf16 to f32 and back, with the bits of F16C and AVX-512. Widening is
// exact, narrowing rounds to nearest even, overflow becomes infinity, subnormals are kept. A NaN
// stays a NaN (made quiet, upper payload bits kept). The functions are not inline, so ISA files may
// include this.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

f32 f16_to_f32(u16 half);
u16 f32_to_f16(f32 value);
f32 bf16_to_f32(u16 brain);
u16 f32_to_bf16(f32 value);

// Convert n elements; the arrays do not overlap.
void f16_to_f32_n(const u16* source, u64 n, f32* out);
void f32_to_f16_n(const f32* source, u64 n, u16* out);

}  // namespace tarn::kernels
