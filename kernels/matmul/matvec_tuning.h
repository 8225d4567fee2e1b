// kernels/matmul/matvec_tuning.h
//
// Sizes of matvec_cuda.cu. Chosen by count, not yet by measurement: four warps keep a CTA's share
// of an SM's registers small enough for 11 CTAs (44 registers a thread for one row), and two chunks
// under way in each of their lanes are 44 KiB of loads an SM, three times what 102 GB/s at 600 ns
// over 8 SMs (Orin Nano) needs.
//
// Instructions of a lane per 32 weight bytes, one activation row, from sm_87 SASS (nvcc 13.0, `nvcc
// -cubin -arch=sm_87`, the inner loop in nvdisasm): q4_k 96, q6_k 80, q8_0 51, f16 45. An Orin Nano
// at 1.02 GHz issues 1.04e12 a second, and 102 GB/s want 3.2e9 times that many: 29 %, 25 %, 16 %
// and 14 % of its issue slots. For 8 rows q4_k takes 298 for 32 bytes: 91 %, so a full batch is
// bound by instructions there, not by bytes.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

inline constexpr u32 kMatvecThreads = 128;
inline constexpr u32 kMatvecUnroll = 2;

}  // namespace tarn::kernels
