// kernels/common/cta_host.h: cta.h for the host compiler.
//
// Each thread of a CTA is a fiber. The emulator in tests/support/emulator defines these functions,
// and only test programs link it. At and Shared's reference type pass every access of shared memory
// to the emulator's shadow, with the kernel's file and line.
#pragma once

#ifndef __CUDACC__

#include "kernels/common/cta_types.h"

#define TARN_GPU emulated
#define TARN_DEVICE inline
#define TARN_UNROLL(n)

namespace tarn::kernels::emulated {

struct Site {
  const char* file;
  u32 line;
};
#define TARN_SITE_ARGUMENTS \
  const char *file = __builtin_FILE(), u32 line = static_cast<u32>(__builtin_LINE())

// An index that records the source line where it was written.
struct At {
  // NOLINTNEXTLINE(google-explicit-constructor): its conversion records the line
  At(u32 at, TARN_SITE_ARGUMENTS) : index(at), site{file, line} {}
  u32 index;
  Site site;
};

class CtaState;  // the emulator's

enum class Access : u8 { read, write };
// Checks and records one access of the running thread; returns the address of the bytes.
void* touch_shared(CtaState& state, u32 offset, u32 n_bytes, Access access, Site site);

template <class T>
class Shared {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "the shadow is of words");

 public:
  class Reference {
   public:
    Reference(CtaState& state, u32 offset, Site site)
        : state_(state), offset_(offset), site_(site) {}
    // NOLINTNEXTLINE(google-explicit-constructor): stands for a T&
    operator T() const {
      T value;
      __builtin_memcpy(&value, touch_shared(state_, offset_, sizeof(T), Access::read, site_),
                       sizeof value);
      return value;
    }
    T operator=(const T& value) const {  // NOLINT(misc-unconventional-assign-operator)
      __builtin_memcpy(touch_shared(state_, offset_, sizeof(T), Access::write, site_), &value,
                       sizeof value);
      return value;
    }
    T operator=(const Reference& other) const {  // NOLINT(misc-unconventional-assign-operator)
      return *this = static_cast<T>(other);
    }
    Reference(const Reference&) = default;

   private:
    CtaState& state_;
    u32 offset_;
    Site site_;
  };

  Shared(CtaState& state, u32 offset, u32 count) : state_(&state), offset_(offset), count_(count) {}
  Reference operator[](At at) const;
  u32 count() const { return count_; }
  template <class U>
  Shared<U> as() const {
    return {*state_, offset_, static_cast<u32>(u64{count_} * sizeof(T) / sizeof(U))};
  }
  Shared part(At begin, u32 count) const;
  u32 offset_of(At at) const;  // in bytes; checks the index

 private:
  CtaState* state_;
  u32 offset_;
  u32 count_;
};

class Cta {
 public:
  Cta(CtaState& state, u32 thread, u32 block, u32 block_y)
      : state_(state), thread_(thread), block_(block), block_y_(block_y) {}
  Cta(const Cta&) = delete;
  Cta& operator=(const Cta&) = delete;

  u32 thread() const { return thread_; }
  u32 lane() const { return thread_ % kWarpLanes; }
  u32 warp() const { return thread_ / kWarpLanes; }
  u32 block() const { return block_; }
  u32 block_y() const { return block_y_; }

  void barrier(TARN_SITE_ARGUMENTS);
  void sync_warp(TARN_SITE_ARGUMENTS);
  template <class T>
  T shuffle(T value, u32 from_lane, TARN_SITE_ARGUMENTS) {
    return __builtin_bit_cast(T, exchange(__builtin_bit_cast(u32, value), from_lane, {file, line}));
  }
  template <class T>
  T shuffle_xor(T value, u32 mask, TARN_SITE_ARGUMENTS) {
    return __builtin_bit_cast(
        T, exchange(__builtin_bit_cast(u32, value), lane() ^ mask, {file, line}));
  }
  u32 ballot(bool condition, TARN_SITE_ARGUMENTS);
  u32 sum(u32 value, TARN_SITE_ARGUMENTS);
  u32 transpose(u32 word, TARN_SITE_ARGUMENTS);

  template <class T>
  Shared<T> shared(u32 count, TARN_SITE_ARGUMENTS) {
    return {state_, carve(shared_bytes_of(count, sizeof(T)), {file, line}), count};
  }

  void copy_async(const Shared<U32x4>& target, At at, const void* source);
  void copy_commit();
  template <u32 n_in_flight>
  void copy_wait(TARN_SITE_ARGUMENTS) {
    land_copies(n_in_flight, {file, line});
  }

  void mma_i8(i32 (&out)[4], const u32 (&a)[4], const u32 (&b)[2], i32 start, TARN_SITE_ARGUMENTS);
  void mma_i8_k16(i32 (&out)[4], const u32 (&a)[2], u32 b, i32 start, TARN_SITE_ARGUMENTS);
  void mma_f16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2], TARN_SITE_ARGUMENTS);

 private:
  u32 exchange(u32 value, u32 from_lane, Site site);
  u32 carve(u64 n_bytes, Site site);
  void land_copies(u32 n_in_flight, Site site);

  CtaState& state_;
  u32 thread_, block_, block_y_;
  u32 shared_used_ = 0;
};

void check_index(CtaState& state, u32 index, u32 count, Site site);

template <class T>
u32 Shared<T>::offset_of(At at) const {
  check_index(*state_, at.index, count_, at.site);
  return offset_ + at.index * static_cast<u32>(sizeof(T));
}
template <class T>
typename Shared<T>::Reference Shared<T>::operator[](At at) const {
  return {*state_, offset_of(at), at.site};
}
template <class T>
Shared<T> Shared<T>::part(At begin, u32 count) const {
  check_index(*state_, begin.index + count, count_ + 1, begin.site);
  return {*state_, offset_ + begin.index * static_cast<u32>(sizeof(T)), count};
}

// Check and record one access of the running thread to global memory.
void note_load(const void* address, u32 n_bytes, Site site);
void note_store(const void* address, u32 n_bytes, u32 alignment, Site site);

template <class T>
T load(const void* address, TARN_SITE_ARGUMENTS) {
  note_load(address, sizeof(T), {file, line});
  T value;
  __builtin_memcpy(&value, address, sizeof value);
  return value;
}
template <class T>
T load_once(const void* address, TARN_SITE_ARGUMENTS) {
  return load<T>(address, file, line);
}

template <class T>
void store(void* address, const T& value, TARN_SITE_ARGUMENTS) {
  note_store(address, sizeof(T), alignof(T), {file, line});
  __builtin_memcpy(address, &value, sizeof value);
}

i32 dp4a(u32 a, u32 b, i32 c);
i32 dp2a_low(u32 a, u32 b, i32 c);
f32 fma(f32 a, f32 b, f32 c);
f32 sqrt(f32 x);
f32 widen_f16(u16 half);
u16 narrow_f16(f32 value);
inline u32 bits_of(f32 value) { return __builtin_bit_cast(u32, value); }
inline f32 float_of(u32 bits) { return __builtin_bit_cast(f32, bits); }
inline u32 funnel_right(u32 low, u32 high, u32 shift) {
  return static_cast<u32>(((u64{high} << 32) | low) >> (shift & 31u));
}
inline u32 bits_set(u32 word) { return static_cast<u32>(__builtin_popcount(word)); }
u32 permute_bytes(u32 low, u32 high, u32 selector);
u32 add_f16x2(u32 a, u32 b);
u32 mul_f16x2(u32 a, u32 b);

struct EmulatedKernel {
  void (*run)(Cta& cta, const void* args);
  u32 n_threads;
  u32 args_bytes;
  u64 shared_bytes_max;
};
// Runs the whole launch before it returns, unless the stream queues it for later.
void run_emulated(const EmulatedKernel& kernel, const LaunchShape& shape, GpuStream* stream,
                  const void* args);

template <class Kernel>
void enter_kernel(Cta& cta, const void* args) {
  Kernel::run(cta, *static_cast<const typename Kernel::Args*>(args));
}

template <class Kernel>
void launch(const LaunchShape& shape, GpuStream* stream, const typename Kernel::Args& args) {
  if constexpr (requires { Kernel::kCtasASm; }) static_assert(Kernel::kCtasASm <= 32);
  run_emulated({&enter_kernel<Kernel>, Kernel::kThreads, sizeof(args), shared_bytes_max<Kernel>()},
               shape, stream, &args);
}

template <class... Kernels>
void tell(const KernelSink& sink) {
  (sink.add(sink.context, reinterpret_cast<const void*>(&enter_kernel<Kernels>)), ...);
}

}  // namespace tarn::kernels::emulated

#endif
