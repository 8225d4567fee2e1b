// Goal    the emulator catches every broken rule of kernels/common/cta.h, names the line, and lets
//         what is right pass; its matrix products are those of the PTX manual.
// Method  for each rule the smallest kernel that breaks it, run under a RuleTrap in several seeded
//         orders: each of them must be caught. The right twin of each runs without a trap, where a
//         finding would end the process.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "kernels/common/cta.h"
#include "kernels/common/half.h"
#include "tests/kernels/gpu/gpus.h"
#include "tests/support/seed.h"

namespace tarn::kernels::emulated::emulator_test {
namespace {

constexpr u32 kCtaThreads = 64;

struct RuleArgs {
  f32* out;       // [2 * kCtaThreads]
  const f32* in;  // [4 * kCtaThreads]
};

struct Rule {
  static constexpr u32 kThreads = kCtaThreads;
  static constexpr u64 kSharedBytes = 48 * kKiB;
  using Args = RuleArgs;
};

// Each `Flaw` leaves out one thing that the kernel needs.
enum class Flaw { none, first, second };

template <Flaw flaw>
struct Neighbour : Rule {  // reads what another warp wrote
  static void run(Cta& cta, const Args& args) {
    const Shared<f32> words = cta.shared<f32>(kCtaThreads);
    words[cta.thread()] = args.in[cta.thread()];
    if constexpr (flaw != Flaw::first) cta.barrier();
    args.out[cta.thread()] = words[(cta.thread() + 32) % kCtaThreads];
  }
};

template <Flaw flaw>
struct Reuse : Rule {  // writes what another warp may still be reading
  static void run(Cta& cta, const Args& args) {
    const Shared<f32> words = cta.shared<f32>(kCtaThreads);
    words[cta.thread()] = args.in[cta.thread()];
    cta.barrier();
    const f32 other = words[kCtaThreads - 1 - cta.thread()];
    if constexpr (flaw != Flaw::first) cta.barrier();
    words[cta.thread()] = other;
    args.out[cta.thread()] = words[cta.thread()];
  }
};

template <Flaw flaw>
struct Unwritten : Rule {
  static void run(Cta& cta, const Args& args) {
    const Shared<f32> words = cta.shared<f32>(kCtaThreads);
    if (flaw != Flaw::first || cta.thread() != 7) words[cta.thread()] = args.in[cta.thread()];
    cta.barrier();
    args.out[cta.thread()] = words[cta.thread()];
  }
};

template <Flaw flaw>
struct SameWord : Rule {  // two threads write one word
  static void run(Cta& cta, const Args& args) {
    const Shared<f32> word = cta.shared<f32>(1);
    if (flaw == Flaw::first || cta.thread() == 0) word[0] = 1.0f;
    cta.barrier();
    args.out[cta.thread()] = word[0];
  }
};

template <Flaw flaw>
struct WarpOnly : Rule {  // lanes of a warp exchange words
  static void run(Cta& cta, const Args& args) {
    const Shared<f32> words = cta.shared<f32>(kCtaThreads);
    words[cta.thread()] = args.in[cta.thread()];
    if constexpr (flaw != Flaw::first) cta.sync_warp();
    const f32 other = words[cta.thread() ^ 1u];
    if constexpr (flaw != Flaw::second) cta.sync_warp();
    words[cta.thread()] = other;
    args.out[cta.thread()] = words[cta.thread()];
  }
};

template <Flaw flaw>
struct Copy : Rule {
  static void run(Cta& cta, const Args& args) {
    const Shared<U32x4> chunks = cta.shared<U32x4>(kCtaThreads);
    cta.copy_async(chunks, cta.thread(), args.in + 4 * cta.thread());
    cta.copy_commit();
    if constexpr (flaw != Flaw::first) cta.copy_wait<0>();
    if constexpr (flaw != Flaw::second) cta.barrier();
    args.out[cta.thread()] = chunks.as<f32>()[4 * (kCtaThreads - 1 - cta.thread())];
  }
};

template <Flaw flaw>
struct OldestCopy : Rule {  // two groups are on their way, the first is wanted
  static void run(Cta& cta, const Args& args) {
    const Shared<U32x4> chunks = cta.shared<U32x4>(2 * kCtaThreads);
    cta.copy_async(chunks, cta.thread(), args.in + 4 * cta.thread());
    cta.copy_commit();
    cta.copy_async(chunks, kCtaThreads + cta.thread(), args.in + 4 * cta.thread());
    cta.copy_commit();
    cta.copy_wait<1>();
    const u32 wanted = flaw == Flaw::first ? kCtaThreads : 0;
    args.out[cta.thread()] = chunks.as<f32>()[4 * (wanted + cta.thread())];
    if constexpr (flaw != Flaw::second) cta.copy_wait<0>();
  }
};

template <Flaw flaw>
struct Diverging : Rule {  // some threads leave before the barrier, or wait at another
  static void run(Cta& cta, const Args& args) {
    if (flaw == Flaw::first && cta.thread() == 3) return;
    if (flaw == Flaw::second && cta.thread() == 3) {
      cta.barrier();
    } else {
      cta.barrier();
    }
    args.out[cta.thread()] = args.in[cta.thread()];
  }
};
template <>
void Diverging<Flaw::none>::run(Cta& cta, const Args& args) {
  cta.barrier();
  args.out[cta.thread()] = args.in[cta.thread()];
}

template <Flaw flaw>
struct Shuffling : Rule {
  static void run(Cta& cta, const Args& args) {
    f32 value = args.in[cta.thread()];
    if (flaw == Flaw::none || cta.lane() != 5) value = value + cta.shuffle_xor(value, 1);
    if (flaw == Flaw::second && cta.lane() == 5) value = value + cta.shuffle_xor(value, 1);
    args.out[cta.thread()] = value;
  }
};

template <Flaw flaw>
struct TooFar : Rule {  // an index past a shared array, or more of it than the launch gave
  static void run(Cta& cta, const Args& args) {
    const Shared<f32> words = cta.shared<f32>(kCtaThreads);
    if constexpr (flaw == Flaw::second) cta.shared<f32>(1024);
    words[cta.thread() + (flaw == Flaw::first ? 1 : 0)] = args.in[cta.thread()];
    cta.barrier();
    args.out[cta.thread()] = words[cta.thread()];
  }
};

template <Flaw flaw>
struct Misaligned : Rule {  // a vector in shared memory, written by a thread or by a copy
  static void run(Cta& cta, const Args& args) {
    const Shared<f32> words = cta.shared<f32>(4 * kCtaThreads + 4);
    const u32 begin = flaw == Flaw::none ? 4 : flaw == Flaw::first ? 2 : 3;
    const Shared<f32> part = words.part(begin, 4 * kCtaThreads);
    if constexpr (flaw == Flaw::second) {
      cta.copy_async(part.as<U32x4>(), cta.thread(), args.in + 4 * cta.thread());
      cta.copy_commit();
      cta.copy_wait<0>();
    } else {
      part.as<F32x4>()[cta.thread()] = load<F32x4>(args.in + 4 * cta.thread());
    }
    cta.barrier();
    args.out[cta.thread()] = part[cta.thread()];
  }
};

template <Flaw flaw>
struct TwoWriters : Rule {  // two CTAs write a byte; the twin's write other bytes of one word
  static void run(Cta& cta, const Args& args) {
    if constexpr (flaw == Flaw::second) {  // one's last word is the other's first
      store(args.out + cta.block() * (kCtaThreads - 1) + cta.thread(), args.in[0]);
      return;
    }
    const u32 mine = flaw == Flaw::first ? 0 : cta.block();
    store(reinterpret_cast<u8*>(args.out) + 2 * cta.thread() + mine, u8{1});
  }
};

template <Flaw flaw>
struct LoadsWritten : Rule {  // by the path for what is only read; the twin by the plain one
  static void run(Cta& cta, const Args& args) {
    f32* mine = args.out + cta.block() * kCtaThreads + cta.thread();
    store(mine, args.in[cta.thread()]);
    cta.barrier();
    f32 value = *mine;
    if constexpr (flaw == Flaw::first) value = load<f32>(mine);
    if constexpr (flaw == Flaw::second) value = load<F32x4>(mine - cta.thread() % 4).v[3];
    store(mine, value + 1.0f);
  }
};

template <class Kernel>
std::string run_trapped(u64 seed) {
  std::vector<f32> out(u64{2} * kCtaThreads), in(u64{4} * kCtaThreads, 1.0f);
  tarn::test::set_emulator_seed(seed);
  const tarn::test::RuleTrap trap;
  launch<Kernel>({.n_ctas = 2, .shared_bytes = 2048}, nullptr, {out.data(), in.data()});
  return trap.text();
}

constexpr u64 kOrders = 8;

template <class Kernel>
void check_caught(const char* text) {
  for (u64 seed = 0; seed < kOrders; ++seed) {
    CAPTURE(seed);
    const std::string caught = run_trapped<Kernel>(seed);
    CAPTURE(caught);
    CHECK(caught.find(text) != std::string::npos);
    CHECK(caught.find("emulator_test.cpp:") == 0);
  }
}

template <class Kernel>
void check_passes() {
  for (u64 seed = 0; seed < kOrders; ++seed) CHECK(run_trapped<Kernel>(seed) == "");
}

TEST_CASE("each broken rule is caught in every order, and its right twin is not") {
  check_caught<Neighbour<Flaw::first>>("reads ");
  check_passes<Neighbour<Flaw::none>>();
  check_caught<Reuse<Flaw::first>>("with no barrier between");
  check_passes<Reuse<Flaw::none>>();
  check_caught<Unwritten<Flaw::first>>("that nobody wrote");
  check_passes<Unwritten<Flaw::none>>();
  check_caught<SameWord<Flaw::first>>("writes where another thread wrote");
  check_passes<SameWord<Flaw::none>>();
  check_caught<WarpOnly<Flaw::first>>("reads ");
  check_caught<WarpOnly<Flaw::second>>("with no barrier between");
  check_passes<WarpOnly<Flaw::none>>();
  check_caught<Copy<Flaw::first>>("asynchronous copy to this word is under way");
  check_caught<Copy<Flaw::second>>("");
  check_passes<Copy<Flaw::none>>();
  check_caught<OldestCopy<Flaw::first>>("asynchronous copy to this word is under way");
  check_caught<OldestCopy<Flaw::second>>("never waited for");
  check_passes<OldestCopy<Flaw::none>>();
  check_caught<Diverging<Flaw::first>>("not every thread");
  check_caught<Diverging<Flaw::second>>("threads of one CTA wait here and at");
  check_passes<Diverging<Flaw::none>>();
  check_caught<Shuffling<Flaw::first>>("not every lane");
  check_caught<Shuffling<Flaw::second>>("lanes of one warp are here and at");
  check_passes<Shuffling<Flaw::none>>();
  check_caught<TooFar<Flaw::first>>("of a shared array of 64");
  check_caught<TooFar<Flaw::second>>("bytes of shared memory");
  check_passes<TooFar<Flaw::none>>();
  check_caught<Misaligned<Flaw::first>>("for 16 bytes, is not a multiple");
  check_caught<Misaligned<Flaw::second>>("for 16 bytes, is not a multiple");
  check_passes<Misaligned<Flaw::none>>();
  check_caught<TwoWriters<Flaw::first>>("another CTA of the launch wrote");
  check_caught<TwoWriters<Flaw::second>>("another CTA of the launch wrote");
  check_passes<TwoWriters<Flaw::none>>();
  check_caught<LoadsWritten<Flaw::first>>("load() reads what this launch writes");
  check_caught<LoadsWritten<Flaw::second>>("load() reads what this launch writes");
  check_passes<LoadsWritten<Flaw::none>>();
}

template <Flaw flaw>
struct PlainWrite : Rule {
  static void run(Cta& cta, const Args& args) {
    f32* out = args.out + cta.block() * kCtaThreads + cta.thread();
    if (flaw == Flaw::none || cta.thread() != 9) {
      store(out, 2.0f);
    } else {
      *out = 2.0f;
    }
  }
};

template <class Kernel>
std::string run_watched() {
  std::vector<f32> out(u64{2} * kCtaThreads);
  const tarn::test::RuleTrap trap;
  tarn::test::watch_global(out.data(), out.size() * sizeof(f32));
  launch<Kernel>({.n_ctas = 2}, nullptr, {out.data(), nullptr});
  tarn::test::unwatch_global(out.data());
  return trap.text();
}

TEST_CASE("a write that store() did not make is seen in memory that is watched") {
  CHECK(run_watched<PlainWrite<Flaw::first>>().find("other means than store()") !=
        std::string::npos);
  CHECK(run_watched<PlainWrite<Flaw::none>>() == "");
}

// Each CTA loads what the other one wrote in the launch before.
struct Crossing : Rule {
  static void run(Cta& cta, const Args& args) {
    const u32 mine = cta.block() * kCtaThreads + cta.thread();
    store(args.out + mine, load<f32>(args.in + (mine + kCtaThreads) % (2 * kCtaThreads)) + 1.0f);
  }
};

TEST_CASE("what a launch wrote, the next one may load and another of its CTAs write") {
  std::vector<f32> a(u64{2} * kCtaThreads), b(u64{2} * kCtaThreads);
  const tarn::test::RuleTrap trap;
  for (u32 turn = 0; turn < 8; ++turn) {
    launch<Crossing>({.n_ctas = 2}, nullptr, {a.data(), b.data()});
    std::swap(a, b);
  }
  CHECK(trap.text() == "");
  CHECK(b == std::vector<f32>(u64{2} * kCtaThreads, 8.0f));
}

std::string launch_shaped(const LaunchShape& shape) {
  std::vector<f32> out(kCtaThreads), in(u64{4} * kCtaThreads, 1.0f);
  const tarn::test::RuleTrap trap;
  launch<Neighbour<Flaw::none>>(shape, nullptr, {out.data(), in.data()});
  return trap.text();
}

struct Frugal : Rule {
  static constexpr u64 kSharedBytes = 256;
  static void run(Cta&, const Args&) {}
};

TEST_CASE("a launch that CUDA would refuse is refused, and one that belies its kernel") {
  const tarn::test::RuleTrap trap;
  launch<Frugal>({.n_ctas = 1, .shared_bytes = 256}, nullptr, {});
  CHECK(trap.text() == "");
  launch<Frugal>({.n_ctas = 1, .shared_bytes = 272}, nullptr, {});
  CHECK(trap.text() == "more than the kernel's kSharedBytes");
  CHECK(launch_shaped({.n_ctas = 1, .shared_bytes = 48 * kKiB}) == "");
  CHECK(launch_shaped({.n_ctas = 1, .shared_bytes = 48 * kKiB + 16}).find("48 KiB") !=
        std::string::npos);
  CHECK(launch_shaped({.n_ctas = 0, .shared_bytes = 256}) == "a launch of no CTA");
  CHECK(launch_shaped({.n_ctas = 1, .n_ctas_y = 65536, .shared_bytes = 256}).find("along y") !=
        std::string::npos);
}

std::vector<u32> order_seen;

struct NotesOrder : Rule {
  static void run(Cta& cta, const Args&) { order_seen.push_back(cta.block() * 64 + cta.thread()); }
};

std::vector<u32> order_of(u64 seed) {
  order_seen.clear();
  CHECK(run_trapped<NotesOrder>(seed) == "");
  return order_seen;
}

TEST_CASE("one seed gives one order, and another seed another") {
  const std::vector<u32> first = order_of(1);
  CHECK(first.size() == 128);
  CHECK(order_of(1) == first);
  CHECK(order_of(2) != first);
}

struct CollectiveArgs {
  const u32* in;
  u32 *ballots, *sums, *transposed;
};

struct Collectives {
  static constexpr u32 kThreads = 64;
  using Args = CollectiveArgs;
  static void run(Cta& cta, const Args& args) {
    const u32 at = cta.thread(), word = args.in[at];
    args.ballots[at] = cta.ballot(word % 3 == 0);
    args.sums[at] = cta.sum(word);
    args.transposed[at] = cta.transpose(word);
  }
};

TEST_CASE("what lanes give together is what each warp's lanes hold") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<u32> in(64), ballots(64), sums(64), transposed(64);
  for (u32& word : in) word = static_cast<u32>(random.next());
  launch<Collectives>({.n_ctas = 1}, nullptr,
                      {in.data(), ballots.data(), sums.data(), transposed.data()});
  for (u32 warp = 0; warp < 2; ++warp) {
    const u32* words = &in[warp * 32];
    const auto half = [&](u32 row, u32 column) {
      return words[row * 4 + column / 2] >> (column % 2 * 16) & 0xffffu;
    };
    u32 ballot = 0, sum = 0;
    for (u32 lane = 0; lane < 32; ++lane) {
      ballot |= (words[lane] % 3 == 0 ? 1u : 0u) << lane;
      sum += words[lane];
    }
    for (u32 lane = 0; lane < 32; ++lane) {
      const u32 row = lane / 4, column = lane % 4 * 2;
      CHECK(ballots[warp * 32 + lane] == ballot);
      CHECK(sums[warp * 32 + lane] == sum);
      CHECK(transposed[warp * 32 + lane] == (half(column, row) | half(column + 1, row) << 16));
    }
  }
}

TEST_CASE("bytes are chosen as PTX's prmt chooses them, and pairs of f16 are rounded once") {
  CHECK(permute_bytes(0x33221100u, 0x77665544u, 0x3210u) == 0x33221100u);
  CHECK(permute_bytes(0x33221100u, 0x77665544u, 0x5410u) == 0x55441100u);
  CHECK(permute_bytes(0x33221100u, 0x77665544u, 0x7632u) == 0x77663322u);
  CHECK(permute_bytes(0x33221100u, 0x77665544u, 0x5150u) == 0x55115500u);
  const auto pair = [](f32 low, f32 high) {
    return f32_to_f16(low) | static_cast<u32>(f32_to_f16(high)) << 16;
  };
  CHECK(add_f16x2(pair(1279.0f, -3.0f), pair(-1152.0f, 1.5f)) == pair(127.0f, -1.5f));
  CHECK(add_f16x2(pair(2048.0f, 2050.0f), pair(1.0f, 1.0f)) == pair(2048.0f, 2052.0f));  // to even
  CHECK(mul_f16x2(pair(127.0f, -128.0f), pair(0.5f, 0.25f)) == pair(63.5f, -32.0f));
  CHECK(mul_f16x2(pair(127.0f, 3.0f), pair(0.1f, 65504.0f)) ==
        pair(127.0f * f16_to_f32(f32_to_f16(0.1f)), __builtin_inff()));
}

struct MmaArgs {
  const u32* a;  // [16][8] words along k
  const u32* b;  // [8][8]
  i32* c_i8;     // [16][8]
  i32* c_k16;    // of the first half of k
  f32* c_f16;
};

struct MmaAll {
  static constexpr u32 kThreads = 32;
  static constexpr i32 kStart = 1000;
  using Args = MmaArgs;
  static void run(Cta& cta, const Args& args) {
    const u32 group = cta.lane() / 4, within = cta.lane() % 4;
    const u32 a[4] = {args.a[group * 8 + within], args.a[(group + 8) * 8 + within],
                      args.a[group * 8 + within + 4], args.a[(group + 8) * 8 + within + 4]};
    const u32 b[2] = {args.b[group * 8 + within], args.b[group * 8 + within + 4]};
    i32 sums[4], sums_k16[4];
    f32 sums_f16[4] = {0, 0, 0, 0};
    cta.mma_i8(sums, a, b, kStart);
    cta.mma_i8_k16(sums_k16, {a[0], a[1]}, b[0], -kStart);
    cta.mma_f16(sums_f16, a, b);
    for (u32 i = 0; i < 4; ++i) {
      const u32 at = (group + 8 * (i / 2)) * 8 + 2 * within + i % 2;
      args.c_i8[at] = sums[i];
      args.c_k16[at] = sums_k16[i];
      args.c_f16[at] = sums_f16[i];
    }
  }
};

TEST_CASE("matrix products of fragments are those of the rows they stand for") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<u32> a(16 * 8), b(8 * 8);
  for (std::vector<u32>* words : {&a, &b}) {
    for (u32& word : *words) {
      word = f32_to_f16(random.normal()) | u32{f32_to_f16(random.normal())} << 16;
    }
  }
  std::vector<i32> c_i8(128, -1), c_k16(128, -1);
  std::vector<f32> c_f16(128, -1.0f);
  launch<MmaAll>({.n_ctas = 1}, nullptr,
                 {a.data(), b.data(), c_i8.data(), c_k16.data(), c_f16.data()});
  for (u32 row = 0; row < 16; ++row) {
    for (u32 column = 0; column < 8; ++column) {
      i32 sum_i8 = 0, sum_k16 = 0;
      f64 sum_f16 = 0.0, magnitude = 0.0;
      for (u32 k = 0; k < 32; ++k) {
        sum_i8 += static_cast<i8>(a[row * 8 + k / 4] >> (8 * (k % 4))) *
                  static_cast<i8>(b[column * 8 + k / 4] >> (8 * (k % 4)));
        if (k == 15) sum_k16 = sum_i8;
      }
      for (u32 k = 0; k < 16; ++k) {
        const f64 term = f64{f16_to_f32(static_cast<u16>(a[row * 8 + k / 2] >> (16 * (k % 2))))} *
                         f64{f16_to_f32(static_cast<u16>(b[column * 8 + k / 2] >> (16 * (k % 2))))};
        sum_f16 += term;
        magnitude += std::abs(term);
      }
      CHECK(c_i8[row * 8 + column] == MmaAll::kStart + sum_i8);
      CHECK(c_k16[row * 8 + column] == sum_k16 - MmaAll::kStart);
      CHECK(std::abs(c_f16[row * 8 + column] - sum_f16) <= 16 * 0x1p-23 * magnitude);
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::emulated::emulator_test
