// kernels/matmul/matvec_tuning.h
//
// Sizes of matvec_cuda.cu. Chosen by count, not yet by measurement: four warps keep a CTA's share
// of an SM's registers small enough for 12 CTAs, and two chunks under way in each of their lanes
// are 48 KiB of loads an SM, three times what 102 GB/s at 600 ns over 8 SMs (Orin Nano) needs.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

inline constexpr u32 kMatvecThreads = 128;
inline constexpr u32 kMatvecUnroll = 2;

}  // namespace tarn::kernels
