// kernels/common/cta.h
//
// All that a GPU kernel may use of CUDA. A kernel is a struct with
//
//   kThreads                      threads of a CTA, a multiple of 32
//   kCtasASm                      CTAs for which an SM must have registers; may be missing
//   kSharedBytes                  the most shared memory that a launch gives it; missing: none
//   Args                          a POD, passed by value
//   static run(Cta&, const Args&) TARN_DEVICE, the body of one thread
//
// in namespace tarn::kernels::TARN_GPU, enqueued by launch<Kernel>(shape, stream, args). A file
// tells all of its kernels, tell<Kernel, ...>(sink), so that they can be loaded before READY. nvcc
// compiles it over cta_cuda.h (namespace cuda, the only file with built-ins and inline PTX), the
// host compiler over cta_host.h (namespace emulated), so that one binary may hold both.
//
//   Cta           thread(), lane(), warp(), block(), block_y()
//                 barrier(), sync_warp()
//                 shuffle(v, from_lane), shuffle_xor(v, mask), any(condition)      all 32 lanes
//                 shared<T>(count)            carved from the launch's shared bytes, in call order;
//                                             T of 4, 8 or 16 bytes
//                 copy_async(shared, i, from) 16 bytes from global memory; land at copy_wait
//                 copy_commit(), copy_wait<n>() all but the n latest groups have landed, for this
//                                             thread: others see them after a barrier
//                 mma_i8, mma_i8_k16, mma_f16 m16n8k32, m16n8k16 of i8 and of f16; fragments as in
//                                             the PTX manual; those of i8 begin with a number
//   Shared<T>     s[i] reads and writes; copy it out (`const T v = s[i]`, never auto)
//   loads         load<T>(address): read-only data, aligned to T; load_once<T> for what is read
//                 once by the whole launch (weights)
//                 store(address, value)
//   arithmetic    dp4a, dp2a_low, fma, sqrt, widen_f16, narrow_f16, bits_of, float_of, funnel_right
//   TARN_UNROLL(n)  in front of a loop
//
// Floating point is IEEE on both sides, with no contraction but fma(): emulated and real results
// are the same bits, except mma_f16 (f32 sums in an order of the hardware's own; the emulator's is
// ascending k: the two differ by at most 16 * eps * sum|a*b| a step).
//
// Rules that the emulator holds a kernel to: every thread of a CTA reaches every barrier, from the
// same line; lanes of a warp meet at the same collective; a shared word is read only after it was
// written, and neither read nor written where another thread wrote or read it with no barrier (or
// sync_warp, within a warp) between; copies are waited for; vectors are aligned to their size; a
// byte of global memory is written by store() alone, by one CTA of a launch, and not read by load()
// in the launch that writes it; a launch has 48 KiB of shared memory and 65,535 CTAs along y at
// most. Out-of-bounds global accesses are AddressSanitizer's.
#pragma once

#ifdef __CUDACC__
#include "kernels/common/cta_cuda.h"
#else
#include "kernels/common/cta_host.h"
#endif
