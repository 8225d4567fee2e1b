// Speed of attention and of the small ops as a share of what the machine can do, both measured in
// the same run: reads of memory for decode, fused multiply-adds of f32 on registers for prefill.
// Over q8_0 and q4_0 the scores' half of the MACs are of integers, so that share may exceed 1.
//
//   attn_bench [peak] [decode] [prefill] [ops] [--isa NAME] [--type f16|q8_0|q4_0] [--threads N]
//              [--reps N] [--slots N] [--group N] [--heads N] [--dim N] [--page N]
//
// Decode: one row a sequence against `slots` slots, one task a KV head, more KV than the last-level
// cache holds. Prefill: 16 rows a task. A multiply-accumulate (MAC) is one of them: 2 * dim of them
// per (row, q head, slot). Build with -DTARN_BENCH=ON.
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cpu_table.h"
#include "kernels/sample/sample.h"
#include "tests/bench/options.h"
#include "tests/bench/timing.h"
#include "tests/support/seed.h"

#ifdef TARN_HAVE_AVX2
#include <immintrin.h>
#endif

namespace tarn::kernels {
namespace {

using bench::best_seconds;
using bench::Mapping;

struct Options {
  std::vector<std::string> parts;
  std::string isa, type;
  u32 n_threads = 2, n_reps = 7, n_slots = 0, n_group = 4, n_heads = 8, dim = 128, page_tokens = 64;
};

// 12 chains of dependent fused multiply-adds.
#ifdef TARN_HAVE_AVX512
__attribute__((target("avx512f"))) void f32_macs_avx512(u64 n) {
  __m512 sums[12];
  for (__m512& sum : sums) sum = _mm512_set1_ps(0.5f);
  __m512 a = _mm512_set1_ps(0.25f), b = _mm512_set1_ps(0.125f);
  for (u64 i = 0; i < n; i += 12) {
    __asm__ volatile("" : "+v"(a), "+v"(b));
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(a, b, sum);
  }
  for (__m512& sum : sums) __asm__ volatile("" ::"v"(sum));
}
#endif
#ifdef TARN_HAVE_AVX2
__attribute__((target("avx2,fma"))) void f32_macs_avx2(u64 n) {
  __m256 sums[12];
  for (__m256& sum : sums) sum = _mm256_set1_ps(0.5f);
  __m256 a = _mm256_set1_ps(0.25f), b = _mm256_set1_ps(0.125f);
  for (u64 i = 0; i < n; i += 12) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(a, b, sum);
  }
  for (__m256& sum : sums) __asm__ volatile("" ::"x"(sum));
}
#endif

// GMAC/s of f32 on registers of the table's width, all threads together; 0 where none was written.
f64 mac_peak(const CpuTable& table, u32 n_threads) {
  constexpr u64 kOps = 1'200'000;
  const std::string isa = table.isa;
  void (*macs)(u64) = nullptr;
  f64 lanes = 0;
#ifdef TARN_HAVE_AVX512
  if (isa == "avx512") macs = f32_macs_avx512, lanes = 16;
#endif
#ifdef TARN_HAVE_AVX2
  if (isa == "avx2") macs = f32_macs_avx2, lanes = 8;
#endif
  if (macs == nullptr) return 0;
  const f64 s = best_seconds(n_threads, 15, n_threads * 4, [&](u64, u32) { macs(kOps); });
  return n_threads * 4 * static_cast<f64>(kOps) * lanes / s * 1e-9;
}

// KV of n_heads heads: pages of a head far from each other, as a pool hands them out.
struct Cache {
  Cache(const Options& o, KvType kv_type, u32 slots)
      : type(kv_type),
        n_slots(slots),
        n_pages((slots + o.page_tokens - 1) / o.page_tokens),
        page_bytes(2 * kv_vector_bytes(type, o.dim) * o.page_tokens),
        memory(page_bytes * n_pages * o.n_heads),
        pages(u64{n_pages} * o.n_heads) {
    test::Random random(1);
    std::vector<f32> k(o.dim), v(o.dim);
    for (f32& x : k) x = random.normal();
    for (f32& x : v) x = random.normal();
    const u64 slot_bytes = page_bytes / o.page_tokens;
    for (u32 t = 0; t < o.page_tokens; ++t) {
      kv_store_generic({type, k.data(), v.data(), memory.bytes + t * slot_bytes, o.dim});
      k[t % o.dim] = random.normal();
    }
    for (u64 i = 1; i < pages.size(); ++i) {
      std::memcpy(memory.bytes + i * page_bytes, memory.bytes, page_bytes);
    }
    // Groups hold one page of each head side by side.
    for (u32 h = 0; h < o.n_heads; ++h) {
      for (u32 i = 0; i < n_pages; ++i) {
        pages[u64{h} * n_pages + i] = memory.bytes + (u64{i} * o.n_heads + h) * page_bytes;
      }
    }
  }
  KvType type;
  u32 n_slots, n_pages;
  u64 page_bytes;
  Mapping memory;
  std::vector<const u8*> pages;
};

f64 attn_seconds(const Options& o, const CpuTable& table, const Cache& cache, u32 n_rows) {
  const u64 stride = u64{o.n_heads} * o.n_group * o.dim;
  test::Random random(2);
  std::vector<f32> q(n_rows * stride), out(q.size());
  for (f32& x : q) x = random.normal();
  std::vector<u32> visible(n_rows);
  for (u32 n = 0; n < n_rows; ++n) visible[n] = cache.n_slots - n_rows + 1 + n;
  const u64 scratch_bytes = attn_scratch_bytes(o.page_tokens, o.dim, o.n_group);
  Mapping scratch(o.n_threads * scratch_bytes);
  return best_seconds(o.n_threads, o.n_reps, o.n_heads, [&](u64 head, u32 thread) {
    const u64 first = head * o.n_group * o.dim;
    table.attn({.type = cache.type,
                .pages = cache.pages.data() + head * cache.n_pages,
                .page_tokens = o.page_tokens,
                .head_dim = o.dim,
                .q = q.data() + first,
                .q_stride = stride,
                .out = out.data() + first,
                .out_stride = stride,
                .n_rows = n_rows,
                .n_group_heads = o.n_group,
                .visible = visible.data(),
                .scale = 1.0f / std::sqrt(static_cast<f32>(o.dim)),
                .scratch = scratch.bytes + thread * scratch_bytes});
  });
}

constexpr const char* kTypeNames[] = {"f16", "q8_0", "q4_0"};  // of KvType

const char* name_of(KvType type) { return kTypeNames[static_cast<u32>(type)]; }

std::vector<KvType> types_wanted(const Options& o) {
  std::vector<KvType> types;
  for (const KvType type : {KvType::f16, KvType::q8_0, KvType::q4_0}) {
    if (o.type.empty() || o.type == name_of(type)) types.push_back(type);
  }
  return types;
}

void bench_attn(const Options& o, const CpuTable& table, u32 n_rows, u32 n_slots) {
  const f64 peak = mac_peak(table, o.n_threads);
  const Mapping beyond_caches(512 * kMiB);
  std::memset(beyond_caches.bytes, 1, beyond_caches.n_bytes);  // pages of its own
  for (const KvType type : types_wanted(o)) {
    const Cache cache(o, type, n_slots);
    const f64 reads = read_rate(beyond_caches, o.n_threads, o.n_reps);
    const f64 s = attn_seconds(o, table, cache, n_rows);
    const f64 macs = 2.0 * n_rows * o.n_heads * o.n_group * n_slots * o.dim / s * 1e-9;
    const f64 bytes = static_cast<f64>(cache.page_bytes * cache.pages.size()) / s * 1e-9;
    std::printf(
        "%-7s %s %-4s %u threads, %u rows, %u slots, %u x %u heads of %u, pages of %u: %.1f GB/s "
        "(%.0f%% of %.1f), %.1f GMAC/s (%.0f%% of %.0f)\n",
        n_rows == 1 ? "decode" : "prefill", table.isa, name_of(type), o.n_threads, n_rows, n_slots,
        o.n_heads, o.n_group, o.dim, o.page_tokens, bytes, 100 * bytes / reads, reads, macs,
        peak > 0 ? 100 * macs / peak : 0.0, peak);
  }
}

void print_rate(const char* name, const CpuTable& table, f64 elements, f64 seconds) {
  std::printf("%-12s %-8s %.2f Gelem/s, %.1f us\n", name, table.isa, elements / seconds * 1e-9,
              seconds * 1e6);
}

// One core, what an 8B model's row has, data in the cache.
void bench_ops(const Options& o, const CpuTable& table) {
  constexpr u32 kEmbedding = 4096, kFfn = 14336, kHeads = 40, kDim = 128, kVocabulary = 128256;
  test::Random random(3);
  std::vector<f32> x(kVocabulary), y(kVocabulary), out(kVocabulary);
  for (f32& value : x) value = random.normal() * 3.0f;
  for (f32& value : y) value = random.normal();
  const auto time = [&](const auto& fn) {
    constexpr u32 kTimes = 20;
    return best_seconds(1, 3 * o.n_reps, kTimes, [&](u64, u32) { fn(); }) / kTimes;
  };
  f32* const o_data = out.data();
  print_rate("rms_norm", table, kEmbedding, time([&] {
               table.rms_norm({x.data(), 0, y.data(), o_data, 0, 1, kEmbedding, 1e-5f});
             }));
  print_rate("swiglu", table, kFfn, time([&] {
               table.swiglu({x.data(), y.data(), o_data, kFfn});
             }));
  print_rate("add", table, kEmbedding, time([&] { table.add({o_data, y.data(), kEmbedding}); }));
  print_rate("exp", table, kFfn, time([&] { table.exp({x.data(), o_data, kFfn}); }));
  for (const RopePairs pairs : {RopePairs::adjacent, RopePairs::halves}) {
    std::vector<f32> cos(kDim / 2, 1.0f), sin(kDim / 2, 0.0f);
    print_rate(pairs == RopePairs::adjacent ? "rope adj" : "rope halves", table, kHeads * kDim,
               time([&] {
                 table.rope({o_data, 0, cos.data(), sin.data(), 1, kHeads, kDim, kDim, pairs});
               }));
  }
  for (const KvType type : types_wanted(o)) {
    std::vector<u8> slot(2 * kv_vector_bytes(type, kDim));
    print_rate((std::string("kv ") + name_of(type)).c_str(), table, 2 * kDim, time([&] {
                 table.kv_store({type, x.data(), y.data(), slot.data(), kDim});
               }));
  }
  volatile f64 sink = 0;
  const f32 max = summarize_logits(x.data(), kVocabulary).max;
  print_rate("log_sum_exp", table, kVocabulary,
             time([&] { sink = log_sum_exp(x.data(), kVocabulary, max, table.exp); }));
  if (std::string(table.isa) != "generic") return;
  std::vector<Candidate> best(1024);
  print_rate("summary", table, kVocabulary,
             time([&] { sink = summarize_logits(x.data(), kVocabulary).argmax; }));
  for (const u32 k : {40u, 1024u}) {
    print_rate(k == 40 ? "top 40" : "top 1024", table, kVocabulary,
               time([&] { select_top(x.data(), kVocabulary, k, best.data()); }));
  }
}

Options parse(int argc, char** argv) {
  Options o;
  o.parts = bench::parse_options(argc, argv,
                                 {.texts = {{"--isa", &o.isa}, {"--type", &o.type}},
                                  .numbers = {{"--threads", &o.n_threads},
                                              {"--reps", &o.n_reps},
                                              {"--slots", &o.n_slots},
                                              {"--group", &o.n_group},
                                              {"--heads", &o.n_heads},
                                              {"--dim", &o.dim},
                                              {"--page", &o.page_tokens}}});
  if (o.parts.empty()) o.parts = {"peak", "decode", "prefill", "ops"};
  return o;
}

void run(const Options& o) {
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here() || (!o.isa.empty() && o.isa != table.isa)) continue;
    for (const std::string& part : o.parts) {
      if (part == "decode") bench_attn(o, table, 1, o.n_slots > 0 ? o.n_slots : 32768);
      if (part == "prefill") bench_attn(o, table, kAttnRowsMax, o.n_slots > 0 ? o.n_slots : 4096);
      if (part == "ops") bench_ops(o, table);
      if (part == "peak") {
        const Mapping memory(256 * kMiB);
        std::memset(memory.bytes, 1, memory.n_bytes);
        for (u32 n = 1; n <= o.n_threads; ++n) {
          std::printf("peak    %s %u threads: %.0f GMAC/s, %.1f GB/s\n", table.isa, n,
                      mac_peak(table, n), read_rate(memory, n, o.n_reps));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels

int main(int argc, char** argv) { tarn::kernels::run(tarn::kernels::parse(argc, argv)); }
