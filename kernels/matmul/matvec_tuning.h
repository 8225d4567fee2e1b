// Sizes of matvec_cuda.cu. Chosen by count. On an H100 (tests/golden/gpu/h100.md) one row reaches
// 0.89 to 0.96 of copying, four 0.60 to 0.75, eight 0.32 to 0.51.
//
// Loads in flight. Memory with B bytes a second and latency t needs B * t bytes in flight, and an
// SM its share: 29 KiB on an H200 (4.8 TB/s, 800 ns, 132 SMs), 20 on an H100, 8 on an Orin (102
// GB/s, 600 ns, 8 SMs; an AGX has twice both). Batch 1 has 64 registers a thread on every
// architecture: 8 CTAs of 4 warps an SM, 4 turns of 576 bytes (q4_k) each: 72 KiB at the start of a
// row of 4096, 36 in the mean. An H100 also needs eight CTAs an SM to run 4096 rows at once (1,024
// CTAs for 1,056 places). A batch of 8 has 168 registers: 3 CTAs, 2 rows, 1 turn: 14 KiB.
//
// Instructions of a warp for one turn of one row of weights, from SASS (nvcc 13.0, sm_87; sm_90
// differs by at most one). And the share of the issue slots (4 an SM and cycle) at full bandwidth:
//
//   rows of acts     1      2      4      8       Orin Nano, 1.02 GHz    H100, 1.7 GHz, 3.35 TB/s
//   q4_k  576 B    53.5   69.5    105  175.5       29 % to  95 %          35 % to 114 %
//   q6_k  840 B    68.5   87.5  118.5  182.5       25 % to  68 %          30 % to  81 %
//   q8_0  544 B    20.5     30     53     89       12 % to  51 %          14 % to  61 %
//   f16   512 B      26     34     55     95       16 % to  58 %          19 % to  69 %
//
// So bytes limit 1 to 4 rows, with room for the uncounted beginning and end of a row (about 150
// instructions, as much as 3 turns). Instructions limit 8 rows of q4_k.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

inline constexpr u32 kMatvecThreads = 128;
// Turns of a lane's weights in flight, for each of the warp's rows.
constexpr u32 matvec_ahead(u32 n_acts) { return n_acts == 1 ? 4 : n_acts == 2 ? 2 : 1; }
// CTAs for which an SM must have registers; 0: the compiler's choice.
constexpr u32 matvec_ctas_a_sm(u32 n_acts) { return n_acts == 4 ? 4 : n_acts == 8 ? 3 : 0; }

}  // namespace tarn::kernels
