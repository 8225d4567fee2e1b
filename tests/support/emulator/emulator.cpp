#include "tests/support/emulator/emulator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <numeric>

#include "kernels/common/half.h"
#include "tests/support/emulator/cta_state.h"

namespace tarn::test {
namespace {
// The CTA that this host thread emulates: load() and store() are not told.
thread_local kernels::emulated::CtaState* running = nullptr;
}  // namespace

class Emulator {
 public:
  void seed(u64 seed) { random_ = Random(seed); }
  RuleTrap* trap = nullptr;

  void run(const kernels::emulated::EmulatedKernel& kernel, const kernels::LaunchShape& shape,
           const void* args) {
    if (const char* refused = why_refused(kernel, shape)) return note(refused);
    // The grid's CTAs in any order: nothing may lean on one running before another.
    std::vector<u32> order(u64{shape.n_ctas} * shape.n_ctas_y);
    std::iota(order.begin(), order.end(), 0u);
    for (u64 i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random_.below(i)]);
    global_.begin_launch();
    const std::vector<Before> before = watched_bytes();
    for (const u32 cta : order) {
      kernels::emulated::CtaState state(threads_, global_, random_);
      running = &state;
      const std::string broken = state.run({.kernel = &kernel,
                                            .args = args,
                                            .block = cta % shape.n_ctas,
                                            .block_y = cta / shape.n_ctas,
                                            .shared_bytes = shape.shared_bytes});
      if (!broken.empty()) return note(broken);
    }
    if (!only_stored(before)) note("global memory was written by other means than store()");
  }

  void watch(const void* begin, u64 n_bytes) { watched_[static_cast<const u8*>(begin)] = n_bytes; }
  void unwatch(const void* begin) { watched_.erase(static_cast<const u8*>(begin)); }

 private:
  // Returns why CUDA would refuse the configuration as invalid. Our launchers ask for no more
  // shared memory than a CTA gets unasked.
  static const char* why_refused(const kernels::emulated::EmulatedKernel& kernel,
                                 const kernels::LaunchShape& shape) {
    constexpr u64 kSharedBytesMax = 48 * kKiB;
    constexpr u32 kCtasYMax = 65535, kThreadsMax = 1024;
    if (shape.n_ctas == 0 || shape.n_ctas_y == 0) return "a launch of no CTA";
    if (shape.n_ctas_y > kCtasYMax) return "a grid of more than 65,535 CTAs along y";
    if (shape.shared_bytes > kSharedBytesMax) return "a CTA with more than 48 KiB of shared memory";
    if (shape.shared_bytes > kernel.shared_bytes_max) return "more than the kernel's kSharedBytes";
    if (kernel.n_threads > kThreadsMax) return "a CTA of more than 1,024 threads";
    return kernel.n_threads % kernels::kWarpLanes != 0 ? "a CTA of part of a warp" : nullptr;
  }

  // The bytes that watched memory held before the launch.
  struct Before {
    const u8* begin;
    std::vector<u8> bytes;
  };
  std::vector<Before> watched_bytes() const {
    std::vector<Before> all;
    for (const auto& [begin, n_bytes] : watched_) all.push_back({begin, {begin, begin + n_bytes}});
    return all;
  }
  bool only_stored(const std::vector<Before>& all) {
    for (const Before& before : all) {
      if (std::equal(before.bytes.begin(), before.bytes.end(), before.begin)) continue;
      for (u64 i = 0; i < before.bytes.size(); ++i) {
        const u8* byte = before.begin + i;
        if (*byte != before.bytes[i] && !global_.is_written(byte, 1)) return false;
      }
    }
    return true;
  }

  void note(const std::string& broken) {
    if (trap == nullptr) {
      std::fprintf(stderr, "a rule of kernels/common/cta.h is broken (TARN_TEST_SEED=%llu):\n%s\n",
                   static_cast<unsigned long long>(random_.seed()), broken.c_str());
      std::abort();
    }
    if (trap->text_.empty()) trap->text_ = broken;
  }

  std::vector<kernels::emulated::Thread> threads_;
  kernels::emulated::GlobalShadow global_;
  std::map<const u8*, u64> watched_;  // begin, bytes
  Random random_{seed_from_environment()};
};

namespace {
Emulator& emulator() {
  static thread_local Emulator instance;
  return instance;
}
}  // namespace

RuleTrap::RuleTrap() : outer_(emulator().trap) { emulator().trap = this; }
RuleTrap::~RuleTrap() { emulator().trap = outer_; }
void set_emulator_seed(u64 seed) { emulator().seed(seed); }
void watch_global(const void* begin, u64 n_bytes) { emulator().watch(begin, n_bytes); }
void unwatch_global(const void* begin) { emulator().unwatch(begin); }

}  // namespace tarn::test

namespace tarn::kernels::emulated {

void run_emulated(const EmulatedKernel& kernel, const LaunchShape& shape, GpuStream* stream,
                  const void* args) {
  if (stream != nullptr) ++stream->n_launches;
  if (stream == nullptr || !stream->take) {
    test::emulator().run(kernel, shape, args);
    return;
  }
  // The args stand on the launcher's stack; the work keeps a copy of its own.
  const auto* begin = static_cast<const std::byte*>(args);
  const std::vector<std::byte> kept(begin, begin + kernel.args_bytes);
  stream->take(reinterpret_cast<const void*>(kernel.run),
               [kernel, shape, kept] { test::emulator().run(kernel, shape, kept.data()); });
}

void* touch_shared(CtaState& state, u32 offset, u32 n_bytes, Access access, Site site) {
  return state.touch(offset, n_bytes, access, site);
}

void check_index(CtaState& state, u32 index, u32 count, Site site) {
  if (index >= count) {
    state.broken(
        site, "index " + std::to_string(index) + " of a shared array of " + std::to_string(count));
  }
}

void note_load(const void* address, u32 n_bytes, Site site) {
  test::running->load(address, n_bytes, site);
}
void note_store(const void* address, u32 n_bytes, u32 alignment, Site site) {
  test::running->store(address, n_bytes, alignment, site);
}

void Cta::barrier(const char* file, u32 line) { state_.wait_barrier(thread_, {file, line}); }
void Cta::sync_warp(const char* file, u32 line) { state_.meet(thread_, {}, {file, line}, true); }

u32 Cta::exchange(u32 value, u32 from_lane, Site site) {
  Warp::Deposit deposit{};
  deposit.words[0] = value;
  state_.meet(thread_, deposit, site, false);
  return state_.met(thread_, from_lane % kWarpLanes).words[0];
}

u32 Cta::ballot(bool condition, const char* file, u32 line) {
  Warp::Deposit deposit{};
  deposit.words[0] = condition ? 1u : 0u;
  state_.meet(thread_, deposit, {file, line}, false);
  u32 bits = 0;
  for (u32 i = 0; i < kWarpLanes; ++i) bits |= state_.met(thread_, i).words[0] << i;
  return bits;
}

u32 Cta::sum(u32 value, const char* file, u32 line) {
  Warp::Deposit deposit{};
  deposit.words[0] = value;
  state_.meet(thread_, deposit, {file, line}, false);
  u32 sum = 0;
  for (u32 i = 0; i < kWarpLanes; ++i) sum += state_.met(thread_, i).words[0];
  return sum;
}

u32 Cta::transpose(u32 word, const char* file, u32 line) {
  Warp::Deposit deposit{};
  deposit.words[0] = word;
  state_.meet(thread_, deposit, {file, line}, false);
  const u32 row = lane() / 4, column = lane() % 4 * 2;
  const auto at = [&](u32 r, u32 c) {
    return state_.met(thread_, 4 * r + c / 2).words[0] >> (16 * (c % 2)) & 0xffffu;
  };
  return at(column, row) | at(column + 1, row) << 16;
}

u32 Cta::carve(u64 n_bytes, Site site) {
  const u32 offset = shared_used_;
  state_.check_carved(offset + n_bytes, site);
  shared_used_ += static_cast<u32>(n_bytes);
  return offset;
}

void Cta::copy_async(const Shared<U32x4>& target, At at, const void* source) {
  state_.copy_async(thread_, target.offset_of(at), source, at.site);
}
void Cta::copy_commit() { state_.copy_commit(thread_); }
void Cta::land_copies(u32 n_in_flight, Site site) {
  state_.land_copies(thread_, n_in_flight, site);
}

namespace {

i32 byte_of(u32 word, u32 i) { return static_cast<i8>(word >> (8 * i)); }

// Fragments of mma.m16n8: what lane `4 * row_group + column_group` holds (PTX ISA, "Matrix
// fragments for mma.m16n8k16" and "k32"). A register of a holds 32 bits of one row: registers 0 and
// 2 of row group, 1 and 3 of row group + 8; 0 and 1 of the lower half of k, 2 and 3 of the upper.
// What the sums of one lane are made of.
constexpr u32 kRegistersAlongK = 8;  // 16 f16 or 32 i8
struct MmaWords {
  u32 a[2][kRegistersAlongK];  // rows row_group and row_group + 8
  u32 b[2][kRegistersAlongK];  // columns 2 * column_group and the next
};

MmaWords gather(const CtaState& state, u32 thread) {
  const u32 group = thread % kWarpLanes / 4, within = thread % 4;
  MmaWords words;
  for (u32 k = 0; k < kRegistersAlongK; ++k) {
    const Warp::Deposit& of_rows = state.met(thread, 4 * group + k % 4);
    for (u32 i = 0; i < 2; ++i) {
      words.a[i][k] = of_rows.words[i + k / 4 * 2];
      words.b[i][k] = state.met(thread, 4 * (2 * within + i) + k % 4).words[4 + k / 4];
    }
  }
  return words;
}

void deposit_fragments(CtaState& state, u32 thread, const u32 (&a)[4], const u32 (&b)[2],
                       Site site) {
  Warp::Deposit deposit{};
  std::memcpy(deposit.words, a, sizeof a);
  std::memcpy(deposit.words + 4, b, sizeof b);
  state.meet(thread, deposit, site, false);
}

}  // namespace

void Cta::mma_i8(i32 (&out)[4], const u32 (&a)[4], const u32 (&b)[2], i32 start, const char* file,
                 u32 line) {
  deposit_fragments(state_, thread_, a, b, {file, line});
  const MmaWords words = gather(state_, thread_);
  for (u32 i = 0; i < 4; ++i) {
    out[i] = start;
    for (u32 k = 0; k < kRegistersAlongK; ++k) {
      out[i] = dp4a(words.a[i / 2][k], words.b[i % 2][k], out[i]);
    }
  }
}

// Half as long: its registers are the first of the longer one's.
void Cta::mma_i8_k16(i32 (&out)[4], const u32 (&a)[2], u32 b, i32 start, const char* file,
                     u32 line) {
  mma_i8(out, {a[0], a[1], 0, 0}, {b, 0}, start, file, line);
}

void Cta::mma_f16(f32 (&c)[4], const u32 (&a)[4], const u32 (&b)[2], const char* file, u32 line) {
  deposit_fragments(state_, thread_, a, b, {file, line});
  const MmaWords words = gather(state_, thread_);
  f32 x[2][2 * kRegistersAlongK], y[2][2 * kRegistersAlongK];
  for (u32 i = 0; i < 2; ++i) {
    for (u32 k = 0; k < 2 * kRegistersAlongK; ++k) {
      x[i][k] = widen_f16(static_cast<u16>(words.a[i][k / 2] >> (k % 2 * 16)));
      y[i][k] = widen_f16(static_cast<u16>(words.b[i][k / 2] >> (k % 2 * 16)));
    }
  }
  for (u32 i = 0; i < 4; ++i) {
    for (u32 k = 0; k < 2 * kRegistersAlongK; ++k) c[i] = c[i] + x[i / 2][k] * y[i % 2][k];
  }
}

i32 dp4a(u32 a, u32 b, i32 c) {
  for (u32 i = 0; i < 4; ++i) c += byte_of(a, i) * byte_of(b, i);
  return c;
}
i32 dp2a_low(u32 a, u32 b, i32 c) {
  return c + static_cast<i16>(a) * byte_of(b, 0) + static_cast<i16>(a >> 16) * byte_of(b, 1);
}
f32 fma(f32 a, f32 b, f32 c) { return std::fma(a, b, c); }
f32 sqrt(f32 x) { return std::sqrt(x); }
f32 widen_f16(u16 half) { return f16_to_f32(half); }
u16 narrow_f16(f32 value) { return f32_to_f16(value); }
u32 permute_bytes(u32 low, u32 high, u32 selector) {
  const u64 bytes = u64{high} << 32 | low;
  u32 out = 0;
  for (u32 i = 0; i < 4; ++i) {
    out |= static_cast<u32>(bytes >> (8 * (selector >> (4 * i) & 7u)) & 0xffu) << (8 * i);
  }
  return out;
}
// f32 has more than twice the digits of f16, so that rounding twice is rounding once.
template <class Fn>
static u32 halves(u32 a, u32 b, Fn&& fn) {
  u32 out = 0;
  for (u32 shift = 0; shift < 32; shift += 16) {
    const f32 value =
        fn(widen_f16(static_cast<u16>(a >> shift)), widen_f16(static_cast<u16>(b >> shift)));
    out |= u32{narrow_f16(value)} << shift;
  }
  return out;
}
u32 add_f16x2(u32 a, u32 b) {
  return halves(a, b, [](f32 x, f32 y) { return x + y; });
}
u32 mul_f16x2(u32 a, u32 b) {
  return halves(a, b, [](f32 x, f32 y) { return x * y; });
}

}  // namespace tarn::kernels::emulated
