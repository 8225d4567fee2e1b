// kernels/common/cta_cuda.h: cta.h for nvcc. Nothing newer than sm_80.
#pragma once

#ifdef __CUDACC__

#include "kernels/common/cta_types.h"

#define TARN_GPU cuda
#define TARN_DEVICE __device__ __forceinline__
#define TARN_PRAGMA(text) _Pragma(#text)
#define TARN_UNROLL(n) TARN_PRAGMA(unroll n)

namespace tarn::kernels::cuda {

template <class T>
class Shared {
 public:
  TARN_DEVICE Shared(T* first, u32 count) : first_(first), count_(count) {}
  TARN_DEVICE T& operator[](u32 i) const { return first_[i]; }
  TARN_DEVICE u32 count() const { return count_; }
  template <class U>
  TARN_DEVICE Shared<U> as() const {
    return {reinterpret_cast<U*>(first_), static_cast<u32>(u64{count_} * sizeof(T) / sizeof(U))};
  }
  TARN_DEVICE Shared part(u32 begin, u32 count) const { return {first_ + begin, count}; }

 private:
  T* first_;
  u32 count_;
};

class Cta {
 public:
  TARN_DEVICE u32 thread() const { return threadIdx.x; }
  TARN_DEVICE u32 lane() const { return threadIdx.x % kWarpLanes; }
  TARN_DEVICE u32 warp() const { return threadIdx.x / kWarpLanes; }
  TARN_DEVICE u32 block() const { return blockIdx.x; }
  TARN_DEVICE u32 block_y() const { return blockIdx.y; }

  TARN_DEVICE void barrier() { __syncthreads(); }
  TARN_DEVICE void sync_warp() { __syncwarp(); }
  template <class T>
  TARN_DEVICE T shuffle(T value, u32 from_lane) {
    return __shfl_sync(kAllLanes, value, static_cast<int>(from_lane));
  }
  template <class T>
  TARN_DEVICE T shuffle_xor(T value, u32 mask) {
    return __shfl_xor_sync(kAllLanes, value, static_cast<int>(mask));
  }
  TARN_DEVICE u32 ballot(bool condition) { return __ballot_sync(kAllLanes, condition); }
  TARN_DEVICE u32 sum(u32 value) { return __reduce_add_sync(kAllLanes, value); }
  TARN_DEVICE u32 transpose(u32 word) {
    u32 out;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(word));
    return out;
  }

  template <class T>
  TARN_DEVICE Shared<T> shared(u32 count) {
    extern __shared__ U32x4 tarn_shared_bytes[];
    T* first = reinterpret_cast<T*>(reinterpret_cast<u8*>(tarn_shared_bytes) + shared_used_);
    shared_used_ += static_cast<u32>(shared_bytes_of(count, sizeof(T)));
    return {first, count};
  }

  TARN_DEVICE void copy_async(const Shared<U32x4>& target, u32 i, const void* source) {
    const u32 address = static_cast<u32>(__cvta_generic_to_shared(&target[i]));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(source)
                 : "memory");
  }
  TARN_DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  template <u32 n_in_flight>
  TARN_DEVICE void copy_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(n_in_flight) : "memory");
  }

  // out = start + a * b: a 16x32, b 32x8 of i8, out 16x8 of i32.
  TARN_DEVICE void mma_i8(i32 (&out)[4], const u32 (&a)[4], const u32 (&b)[2], i32 start) {
    asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%10,%10,%10,%10};"
        : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(start));
  }
  // The same of a 16x16 and b 16x8.
  TARN_DEVICE void mma_i8_k16(i32 (&out)[4], const u32 (&a)[2], u32 b, i32 start) {
    asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
        "{%7,%7,%7,%7};"
        : "=r"(out[0]), "=r"(out[1]), "=r"(out[2]), "=r"(out[3])
        : "r"(a[0]), "r"(a[1]), "r"(b), "r"(start));
  }
  // c += a * b: a 16x16, b 16x8 of f16, c 16x8 of f32.
  TARN_DEVICE void mma_f16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }

 private:
  static constexpr u32 kAllLanes = 0xffffffffu;
  u32 shared_used_ = 0;
};

// The read-only path; T is an integer of 1, 2 or 4 bytes, f32, or one of the vectors.
template <class T>
TARN_DEVICE T load(const void* address) {
  if constexpr (sizeof(T) == 16) {
    const uint4 v = __ldg(static_cast<const uint4*>(address));
    return __builtin_bit_cast(T, v);
  } else if constexpr (sizeof(T) == 8) {
    const uint2 v = __ldg(static_cast<const uint2*>(address));
    return __builtin_bit_cast(T, v);
  } else {
    return __ldg(static_cast<const T*>(address));
  }
}

// Not allocated in L1: the line is read once.
template <class T>
TARN_DEVICE T load_once(const void* address) {
  static_assert(sizeof(T) == 16 || sizeof(T) == 8, "weights are loaded by vectors");
  if constexpr (sizeof(T) == 16) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(address));
    return __builtin_bit_cast(T, v);
  } else {
    uint2 v;
    asm("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(address));
    return __builtin_bit_cast(T, v);
  }
}

// `address` has T's alignment.
template <class T>
TARN_DEVICE void store(void* address, const T& value) {
  *static_cast<T*>(address) = value;
}

TARN_DEVICE i32 dp4a(u32 a, u32 b, i32 c) {
  return __dp4a(static_cast<i32>(a), static_cast<i32>(b), c);
}
// The two i16 of a times the two lower i8 of b.
TARN_DEVICE i32 dp2a_low(u32 a, u32 b, i32 c) {
  return __dp2a_lo(static_cast<i32>(a), static_cast<i32>(b), c);
}
TARN_DEVICE f32 fma(f32 a, f32 b, f32 c) { return __fmaf_rn(a, b, c); }
TARN_DEVICE f32 sqrt(f32 x) { return __fsqrt_rn(x); }
TARN_DEVICE f32 widen_f16(u16 half) {
  f32 value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(half));
  return value;
}
TARN_DEVICE u16 narrow_f16(f32 value) {
  u16 half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}
TARN_DEVICE u32 bits_of(f32 value) { return __float_as_uint(value); }
TARN_DEVICE f32 float_of(u32 bits) { return __uint_as_float(bits); }
// The low word of (high:low) >> shift, shift in [0, 31].
TARN_DEVICE u32 funnel_right(u32 low, u32 high, u32 shift) {
  return __funnelshift_r(low, high, shift);
}
TARN_DEVICE u32 bits_set(u32 word) { return static_cast<u32>(__popc(word)); }
// Byte i is byte (selector >> 4i & 7) of (high:low).
TARN_DEVICE u32 permute_bytes(u32 low, u32 high, u32 selector) {
  return __byte_perm(low, high, selector);
}
TARN_DEVICE u32 add_f16x2(u32 a, u32 b) {
  u32 sum;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sum) : "r"(a), "r"(b));
  return sum;
}
TARN_DEVICE u32 mul_f16x2(u32 a, u32 b) {
  u32 product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
}

// 0 leaves the registers to the compiler, which does not choose the same as for 1.
template <class Kernel>
constexpr u32 ctas_a_sm() {
  if constexpr (requires { Kernel::kCtasASm; }) return Kernel::kCtasASm;
  return 0;
}

// The numbers are part of the name, so that ptxas prints them with the kernel
// (tests/kernels/gpu/occupancy.py).
template <class Kernel, u32 n_threads = Kernel::kThreads, u64 = shared_bytes_max<Kernel>()>
__global__ void __launch_bounds__(n_threads, ctas_a_sm<Kernel>())
    enter_kernel(const __grid_constant__ typename Kernel::Args args) {
  Cta cta;
  Kernel::run(cta, args);
}

template <class Kernel>
void launch(const LaunchShape& shape, GpuStream* stream, const typename Kernel::Args& args) {
  enter_kernel<Kernel><<<dim3(shape.n_ctas, shape.n_ctas_y), Kernel::kThreads, shape.shared_bytes,
                         reinterpret_cast<cudaStream_t>(stream)>>>(args);
}

template <class... Kernels>
void tell(const KernelSink& sink) {
  (sink.add(sink.context, reinterpret_cast<const void*>(&enter_kernel<Kernels>)), ...);
}

}  // namespace tarn::kernels::cuda

#endif
