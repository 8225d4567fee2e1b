// The part of CUDA that a GPU kernel may use. A kernel is a struct with
//
//   kThreads                      threads of a CTA, a multiple of 32
//   kCtasASm                      CTAs for which an SM must have registers; may be missing
//   kSharedBytes                  the largest shared memory of a launch; missing: none
//   Args                          a POD, passed by value
//   static run(Cta&, const Args&) TARN_DEVICE, the body of one thread
//
// in namespace tarn::kernels::TARN_GPU, enqueued by launch<Kernel>(shape, stream, args). A file
// lists all of its kernels, tell<Kernel, ...>(sink), so that they can be loaded before READY. nvcc
// compiles it over cta_cuda.h (namespace cuda, the only file with built-ins and inline PTX). The
// host compiler compiles it over cta_host.h (namespace emulated), so one binary may hold both.
//
//   Cta           thread(), lane(), warp(), block(), block_y()
//                 barrier(), sync_warp()
//                 shuffle(v, from_lane), shuffle_xor(v, mask)                      all 32 lanes
//                 ballot(condition), sum(u32) bit i: lane i's; over the lanes     all 32 lanes
//                 transpose(word)             of 8x8 f16; lane 4r + c has 2c and 2c + 1 of row r
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
//   arithmetic    dp4a, dp2a_low, fma, sqrt, widen_f16, narrow_f16, bits_of, float_of, bits_set,
//                 funnel_right, permute_bytes (PTX's prmt), add_f16x2, mul_f16x2
//   TARN_UNROLL(n)  in front of a loop
//
// Floating point is IEEE on both sides, without contraction except fma(). So emulated and real
// results have the same bits, except mma_f16: the hardware sums f32 in its own order, the emulator
// in ascending k. The two differ by at most 16 * eps * sum|a*b| a step.
//
// The emulator checks these rules. Every thread of a CTA reaches every barrier, from the same line;
// lanes of a warp reach the same collective. A shared word is read only after it was written;
// between a write and another thread's access there is a barrier (or sync_warp, within a warp).
// Copies are waited for; vectors are aligned to their size. Only store() writes global memory; one
// CTA of a launch writes a byte, and no load() of that launch reads it. A launch has at most 48 KiB
// of shared memory and 65,535 CTAs along y. AddressSanitizer finds out-of-bounds global accesses.
#pragma once

#ifdef __CUDACC__
#include "kernels/common/cta_cuda.h"
#else
#include "kernels/common/cta_host.h"
#endif
