// Speed of the matrix products as a share of what the machine can do, both measured in the same
// run: int8 dot products on registers alone for prefill, the rate of plain reads for decode.
//
//   matmul_bench [peak] [prefill] [decode] [tile] [--isa NAME] [--type NAME] [--threads N]
//                [--reps N] [--out ROWS] [--k K] [--acts N] [--tiles N]
//
// Prefill multiplies one matrix (14336 x 4096 unless told otherwise) again and again. Decode walks
// through more tiles than the last-level cache holds. Times are the threads' CPU time, the best of
// the repetitions: on a busy machine two threads may in truth have run one after the other, and
// then GB/s are those of one thread alone, twice. Build with -DTARN_BENCH=ON.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/matmul/matmul_tuning.h"
#include "tests/bench/options.h"
#include "tests/bench/timing.h"
#include "tests/kernels/quant/random_rows.h"
#include "tests/kernels/quant/runnable_tables.h"
#include "tests/support/seed.h"

#ifdef TARN_HAVE_AVX512
#include <immintrin.h>
#endif

namespace tarn::kernels {
namespace {

using bench::best_seconds;
using bench::Mapping;
using bench::read_rate;

struct Options {
  std::vector<std::string> parts;
  std::string isa, type;
  u32 n_threads = 2, n_reps = 5, n_out = 14336, k = 4096;
  u32 n_acts = 0;   // 0: a list of them
  u32 n_tiles = 0;  // per task; 0: as matmul_tuning.h says
};

#ifdef TARN_HAVE_AVX512
__attribute__((target("avx512f,avx512vnni"))) void dot_products(u64 n) {
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  __m512i s0 = a, s1 = a, s2 = a, s3 = a, s4 = a, s5 = a, s6 = a, s7 = a, s8 = a, s9 = a;
  for (u64 i = 0; i < n; i += 10) {
    s0 = _mm512_dpbusd_epi32(s0, a, b), s1 = _mm512_dpbusd_epi32(s1, a, b);
    s2 = _mm512_dpbusd_epi32(s2, a, b), s3 = _mm512_dpbusd_epi32(s3, a, b);
    s4 = _mm512_dpbusd_epi32(s4, a, b), s5 = _mm512_dpbusd_epi32(s5, a, b);
    s6 = _mm512_dpbusd_epi32(s6, a, b), s7 = _mm512_dpbusd_epi32(s7, a, b);
    s8 = _mm512_dpbusd_epi32(s8, a, b), s9 = _mm512_dpbusd_epi32(s9, a, b);
    __asm__ volatile("" : "+v"(s0), "+v"(s1), "+v"(s2), "+v"(s3), "+v"(s4), "+v"(s5), "+v"(s6));
    __asm__ volatile("" : "+v"(s7), "+v"(s8), "+v"(s9));
  }
  __m512i sum = s0;
  for (const __m512i s : {s1, s2, s3, s4, s5, s6, s7, s8, s9}) sum = _mm512_add_epi32(sum, s);
  __asm__ volatile("" ::"v"(sum));
}
#endif

// GMAC/s of vpdpbusd on registers, all threads together; 0 where the machine has none.
f64 dot_peak(u32 n_threads) {
#ifdef TARN_HAVE_AVX512
  if (__builtin_cpu_supports("avx512vnni")) {
    constexpr u64 kDots = 2'000'000;
    const f64 s = best_seconds(n_threads, 15, n_threads * 4, [](u64, u32) { dot_products(kDots); });
    return static_cast<f64>(n_threads * 4 * kDots * 64) / s * 1e-9;
  }
#endif
  static_cast<void>(n_threads);
  return 0;
}

struct Acts {
  std::vector<f32> x, scales;
  std::vector<i8> q;
  std::vector<i32> sums;
};

Acts make_acts(u32 n, u32 k) {
  tarn::test::Random random(1);
  Acts acts;
  acts.x.resize(u64{n} * k);
  for (f32& x : acts.x) x = random.normal();
  acts.q.resize(acts.x.size());
  acts.scales.resize(acts.x.size() / 32);
  acts.sums.resize(acts.x.size() / 16);
  quantize_activations_generic({.x = acts.x.data(),
                                .x_stride = k,
                                .q = acts.q.data(),
                                .scales = acts.scales.data(),
                                .sums = acts.sums.data(),
                                .n_rows = n,
                                .k = k});
  return acts;
}

// One tile of random rows, repeated: the values do not matter, that they are finite does.
void fill_tiles(TensorType type, u32 k, u64 n_tiles, u8* out) {
  tarn::test::Random random(2);
  const std::vector<u8> rows = test::random_rows(random, type, kTileRows, k);
  tile_rows_generic({type, rows.data(), kTileRows, k, out});
  const u64 tile_bytes = tiled_bytes(type, kTileRows, k);
  for (u64 t = 1; t < n_tiles; ++t) std::memcpy(out + t * tile_bytes, out, tile_bytes);
}

// Seconds for one product with all tiles of `memory`.
f64 product_seconds(const Options& o, MatmulFn matmul, TensorType type, u64 n_tiles,
                    const u8* weights, const Acts& acts, u32 n_acts) {
  const u64 n_out = n_tiles * kTileRows;
  std::vector<f32> out(n_out * n_acts);
  const u32 tuned = matmul_tiles_per_task(type, o.k, n_acts);
  const u32 per_task = o.n_tiles != 0 ? o.n_tiles : tuned;
  return best_seconds(o.n_threads, o.n_reps, (n_tiles + per_task - 1) / per_task,
                      [&](u64 task, u32) {
                        const u64 begin = task * per_task, end = begin + per_task;
                        matmul({.type = type,
                                .weights = weights,
                                .n_out = n_out,
                                .k = o.k,
                                .tile_begin = begin,
                                .tile_end = end < n_tiles ? end : n_tiles,
                                .n_acts = n_acts,
                                .x = acts.x.data(),
                                .x_stride = o.k,
                                .q = acts.q.data(),
                                .scales = acts.scales.data(),
                                .sums = acts.sums.data(),
                                .bias = nullptr,
                                .out = out.data(),
                                .out_stride = n_out});
                      });
}

bool wanted(const Options& o, const TypeTraits& traits) {
  return o.type.empty() || o.type == traits.name;
}

void bench_prefill(const Options& o, const CpuTable& table) {
  const f64 peak = dot_peak(o.n_threads);
  std::printf("prefill %u x %u, isa %s, %u threads, dot product peak %.0f GMAC/s\n", o.n_out, o.k,
              table.isa, o.n_threads, peak);
  for (const TypeTraits& traits : kTypeTraits) {
    if (!wanted(o, traits)) continue;
    const u64 n_tiles = o.n_out / kTileRows;
    Mapping weights(tiled_bytes(traits.type, o.n_out, o.k));
    fill_tiles(traits.type, o.k, n_tiles, weights.bytes);
    const Acts acts = make_acts(512, o.k);
    std::printf("  %-5s", traits.name);
    for (u32 n : {1u, 4u, 8u, 16u, 32u, 64u, 128u, 512u}) {
      if (o.n_acts != 0 && o.n_acts != n) continue;
      const f64 s = product_seconds(o, table.matmul, traits.type, n_tiles, weights.bytes, acts, n);
      const f64 rate = static_cast<f64>(u64{o.n_out} * o.k * n) / s * 1e-9;
      std::printf("  n=%u %.0f (%.0f%%)", n, rate, peak > 0 ? 100 * rate / peak : 0.0);
    }
    std::printf("\n");
  }
}

void bench_decode(const Options& o, const CpuTable& table) {
  Mapping memory(768 * kMiB);
  for (const TypeTraits& traits : kTypeTraits) {
    if (!wanted(o, traits)) continue;
    const u64 n_tiles = memory.n_bytes / tiled_bytes(traits.type, kTileRows, o.k);
    fill_tiles(traits.type, o.k, n_tiles, memory.bytes);
    const f64 peak = read_rate(memory, o.n_threads, o.n_reps);
    std::printf("decode  %-5s k %u, isa %s, %u threads, reads %.1f GB/s:", traits.name, o.k,
                table.isa, o.n_threads, peak);
    const f64 bytes = static_cast<f64>(n_tiles * tiled_bytes(traits.type, kTileRows, o.k));
    const Acts acts = make_acts(8, o.k);
    for (u32 n : {1u, 2u, 4u, 8u}) {
      if (o.n_acts != 0 && o.n_acts != n) continue;
      const f64 s = product_seconds(o, table.matmul, traits.type, n_tiles, memory.bytes, acts, n);
      std::printf("  n=%u %.1f GB/s (%.0f%%)", n, bytes / s * 1e-9, 100 * bytes / s * 1e-9 / peak);
    }
    std::printf("\n");
  }
}

void bench_tile(const Options& o, const CpuTable& table) {
  for (const TypeTraits& traits : kTypeTraits) {
    if (!wanted(o, traits)) continue;
    constexpr u64 kTiles = 64;
    const u64 tile_bytes = tiled_bytes(traits.type, kTileRows, o.k);
    Mapping target(kTiles * tile_bytes);
    tarn::test::Random random(3);
    const std::vector<u8> rows = test::random_rows(random, traits.type, kTiles * kTileRows, o.k);
    const f64 s = best_seconds(1, o.n_reps, kTiles, [&](u64 t, u32) {
      table.tile_rows({traits.type, rows.data() + t * tile_bytes, kTileRows, o.k,
                       target.bytes + t * tile_bytes});
    });
    std::printf("tile    %-5s isa %s: %.2f GB/s a core\n", traits.name, table.isa,
                static_cast<f64>(kTiles * tile_bytes) / s * 1e-9);
  }
  Acts acts = make_acts(64, o.k);
  const f64 s = best_seconds(1, o.n_reps, 8, [&](u64, u32) {
    table.quantize_activations({.x = acts.x.data(),
                                .x_stride = o.k,
                                .q = acts.q.data(),
                                .scales = acts.scales.data(),
                                .sums = acts.sums.data(),
                                .n_rows = 64,
                                .k = o.k});
  });
  std::printf("quantize_activations isa %s: %.2f Gelem/s a core\n", table.isa,
              8 * static_cast<f64>(acts.x.size()) / s * 1e-9);
}

Options parse(int argc, char** argv) {
  Options o;
  o.parts = bench::parse_options(argc, argv,
                                 {.texts = {{"--isa", &o.isa}, {"--type", &o.type}},
                                  .numbers = {{"--threads", &o.n_threads},
                                              {"--reps", &o.n_reps},
                                              {"--out", &o.n_out},
                                              {"--k", &o.k},
                                              {"--acts", &o.n_acts},
                                              {"--tiles", &o.n_tiles}}});
  if (o.parts.empty()) o.parts = {"peak", "prefill", "decode", "tile"};
  return o;
}

void run(const Options& o) {
  for (const CpuTable& table : test::runnable_tables()) {
    if (!o.isa.empty() ? o.isa != table.isa : std::string("generic") == table.isa) continue;
    for (const std::string& part : o.parts) {
      if (part == "prefill") bench_prefill(o, table);
      if (part == "decode") bench_decode(o, table);
      if (part == "tile") bench_tile(o, table);
      if (part == "peak") {
        Mapping memory(768 * kMiB);
        std::memset(memory.bytes, 1, memory.n_bytes);
        for (u32 n = 1; n <= o.n_threads; ++n) {
          std::printf("peak    %u threads: %.0f GMAC/s, %.1f GB/s\n", n, dot_peak(n),
                      read_rate(memory, n, o.n_reps));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels

int main(int argc, char** argv) { tarn::kernels::run(tarn::kernels::parse(argc, argv)); }
