// Speed of the product-quantisation kernels and of top-k, each as a share of what the machine does
// in the same run, and what one decode step with them takes.
//
//   pq_bench [score] [step] [cluster] [--isa NAME] [--threads N] [--reps N] [--group N] [--k N]
//            [--layers N]
//
// score    codes of more tokens than any cache holds, 4,096 tokens a call, against plain reads
// step     tables, scores, weights and top-k of 8 KV heads times `layers`, at 8K, 32K, 128K tokens:
//          ms a step, and each part's share; codes come from memory, scores stay where they fall.
//          Where there are pairs of codes (two sub-spaces), the choice by these, which takes the
//          place of all but the tables
// cluster  assign and accumulate, rows a second and GMAC/s
//
// Napkin, 2x6, 8 KV heads of 4 q heads, 32 layers, 32K tokens: 16 MiB of codes, which 60 GB/s read
// in 0.3 ms; 8.4 M (token, KV head) pairs with 4 scores and 4 exponentials each, of about 40
// operations per 16 lanes: 84 M operations, 12 ms of one core at 2 a cycle and 3.5 GHz. Arithmetic,
// not memory, is the limit: a score costs more than the half byte of codes that it reads.
// Build with -DTARN_BENCH=ON; the generic bodies run where --isa asks for them.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/bench/options.h"
#include "tests/bench/timing.h"
#include "tests/support/seed.h"

namespace tarn::kernels {
namespace {

using bench::best_seconds;
using bench::Mapping;
using bench::read_rate;

struct Options {
  std::vector<std::string> parts;
  std::string isa;
  u32 n_threads = 2, n_reps = 5, n_group = 4, k = 2048, n_layers = 32;
};

struct Preset {
  const char* name;
  PqCodeFormat format;
  u32 n_subspaces, n_centroids;
};
constexpr Preset kPresets[] = {{"2x6", PqCodeFormat::bytes, 2, 64},
                               {"2x6 packed", PqCodeFormat::packed6, 2, 64},
                               {"2x4 packed", PqCodeFormat::packed4, 2, 16},
                               {"4x8", PqCodeFormat::bytes, 4, 256}};
constexpr u32 kHeads = 8, kHeadDim = 128;

std::vector<f32> normals(u64 n) {
  test::Random random(1);
  std::vector<f32> values(n);
  for (f32& value : values) value = random.normal();
  return values;
}

void fill(const Mapping& memory, const Preset& preset) {
  test::Random random(2);
  for (u64 i = 0; i < memory.n_bytes; i += 8) {
    u64 bytes = random.next();
    if (preset.format == PqCodeFormat::bytes)
      bytes &= 0x0101010101010101u * (preset.n_centroids - 1);
    std::memcpy(memory.bytes + i, &bytes, 8);
  }
}

void bench_score(const Options& o, const CpuTable& table) {
  constexpr u32 kTokens = 4096;
  for (const Preset& preset : kPresets) {
    Mapping memory(512 * kMiB);
    fill(memory, preset);
    const f64 peak = read_rate(memory, o.n_threads, o.n_reps);
    const u64 row_bytes = pq_row_bytes(preset.format, kTokens);
    const u64 call_bytes = row_bytes * preset.n_subspaces;
    const u64 n_calls = memory.n_bytes / call_bytes;
    std::printf("score   %-10s isa %s, %u threads, reads %.1f GB/s:", preset.name, table.isa,
                o.n_threads, peak);
    const std::vector<f32> lut = normals(u64{8} * preset.n_subspaces * preset.n_centroids);
    std::vector<f32> scores(u64{o.n_threads} * 8 * kTokens);
    for (const u32 n_heads : {1u, 4u, 8u}) {
      const f64 s = best_seconds(o.n_threads, o.n_reps, n_calls, [&](u64 call, u32 thread) {
        table.pq_score({.format = preset.format,
                        .codes = memory.bytes + call * call_bytes,
                        .codes_stride = row_bytes,
                        .lut = lut.data(),
                        .scores = scores.data() + u64{thread} * 8 * kTokens,
                        .scores_stride = kTokens,
                        .n_tokens = kTokens,
                        .n_heads = n_heads,
                        .n_subspaces = preset.n_subspaces,
                        .n_padded = pq_padded(preset.n_centroids),
                        .scale = 0.1f});
      });
      const f64 rate = static_cast<f64>(n_calls * call_bytes) / s * 1e-9;
      const f64 scores_rate = static_cast<f64>(n_calls * kTokens * n_heads) / s * 1e-9;
      std::printf("  heads=%u %.1f GB/s (%.0f%%), %.2f Gscore/s", n_heads, rate, 100 * rate / peak,
                  scores_rate);
    }
    std::printf("\n");
  }
}

// One KV head's search, in as many of its parts as `n_parts` says.
struct Search {
  const Options& o;
  const CpuTable& table;
  const Preset& preset;
  u32 n_tokens;
  const std::vector<f32>& q;
  const std::vector<f32>& codebook;
  const Mapping& codes;
  struct Scratch {
    std::vector<f32> lut, scores, weights;
    std::vector<u32> places;
    Mapping radix{kTopKScratchBytes};
  };

  void prepare(Scratch& scratch) const {
    scratch.lut.resize(u64{o.n_group} * preset.n_subspaces * pq_padded(preset.n_centroids));
    scratch.scores.resize(u64{o.n_group} * n_tokens);
    scratch.weights.resize(n_tokens);
    scratch.places.resize(o.k);
  }
  void run(u64 head, Scratch& scratch, u32 n_parts) const {
    const u32 n_padded = pq_padded(preset.n_centroids);
    const u64 row_bytes = pq_row_bytes(preset.format, n_tokens);
    table.pq_lut({.q = q.data(),
                  .q_stride = kHeadDim,
                  .codebook = codebook.data(),
                  .lut = scratch.lut.data(),
                  .n_heads = o.n_group,
                  .n_subspaces = preset.n_subspaces,
                  .dims = kHeadDim / preset.n_subspaces,
                  .n_padded = n_padded});
    if (n_parts < 2) return;
    const u64 head_bytes = row_bytes * preset.n_subspaces;
    table.pq_score({.format = preset.format,
                    .codes = codes.bytes + head % (codes.n_bytes / head_bytes) * head_bytes,
                    .codes_stride = row_bytes,
                    .lut = scratch.lut.data(),
                    .scores = scratch.scores.data(),
                    .scores_stride = n_tokens,
                    .n_tokens = n_tokens,
                    .n_heads = o.n_group,
                    .n_subspaces = preset.n_subspaces,
                    .n_padded = n_padded,
                    .scale = 1.0f / std::sqrt(static_cast<f32>(kHeadDim))});
    if (n_parts < 3) return;
    table.pq_weigh({.scores = scratch.scores.data(),
                    .scores_stride = n_tokens,
                    .weights = scratch.weights.data(),
                    .n_tokens = n_tokens,
                    .n_heads = o.n_group});
    if (n_parts < 4) return;
    table.top_k({.values = scratch.weights.data(),
                 .out = scratch.places.data(),
                 .scratch = scratch.radix.bytes,
                 .n = n_tokens,
                 .k = o.k});
  }
};

f64 pairs_seconds(const Search& search) {
  const Options& o = search.o;
  const Preset& preset = search.preset;
  const u32 side = pq_padded(preset.n_centroids), n_tokens = search.n_tokens;
  const u64 row_bytes = pq_row_bytes(preset.format, n_tokens), head_bytes = 2 * row_bytes;
  const u64 n_heads = search.codes.n_bytes / head_bytes;
  std::vector<u32> counts(u64{kHeads} * o.n_layers * side * side);
  for (u64 head = 0; head < u64{kHeads} * o.n_layers; ++head) {
    const u8* row = search.codes.bytes + head % n_heads * head_bytes;
    for (u32 t = 0; t < n_tokens; ++t) {
      counts[(head * side + pq_code_get(preset.format, row, t)) * side +
             pq_code_get(preset.format, row + row_bytes, t)] += 1;
    }
  }
  std::vector<Search::Scratch> scratch(o.n_threads);
  for (Search::Scratch& of_thread : scratch) search.prepare(of_thread);
  return best_seconds(o.n_threads, o.n_reps, u64{kHeads} * o.n_layers, [&](u64 head, u32 thread) {
    search.run(head, scratch[thread], 1);
    search.table.pq_pairs({.format = preset.format,
                           .codes = search.codes.bytes + head % n_heads * head_bytes,
                           .codes_stride = row_bytes,
                           .lut = scratch[thread].lut.data(),
                           .counts = counts.data() + head * side * side,
                           .scratch = scratch[thread].radix.bytes,
                           .out = scratch[thread].places.data(),
                           .n_tokens = n_tokens,
                           .n_heads = o.n_group,
                           .side = side,
                           .k = o.k,
                           .scale = 0.1f});
  });
}

void bench_step(const Options& o, const CpuTable& table) {
  constexpr const char* kParts[] = {"lut", "score", "weigh", "top-k"};
  for (const Preset& preset : {kPresets[0], kPresets[1], kPresets[3]}) {
    Mapping codes(256 * kMiB);
    fill(codes, preset);
    const std::vector<f32> q = normals(u64{o.n_group} * kHeadDim);
    const std::vector<f32> codebook = normals(u64{kHeadDim} * pq_padded(preset.n_centroids));
    for (const u32 n_tokens : {8u * 1024, 32u * 1024, 128u * 1024}) {
      const Search search{o, table, preset, n_tokens, q, codebook, codes};
      std::vector<Search::Scratch> scratch(o.n_threads);
      for (Search::Scratch& of_thread : scratch) search.prepare(of_thread);
      std::printf("step    %-10s isa %s, %u threads, %u tokens, %u heads x %u, k %u, %u layers:",
                  preset.name, table.isa, o.n_threads, n_tokens, kHeads, o.n_group, o.k,
                  o.n_layers);
      f64 before = 0;
      for (u32 part = 1; part <= 4; ++part) {
        const f64 s =
            best_seconds(o.n_threads, o.n_reps, u64{kHeads} * o.n_layers,
                         [&](u64 head, u32 thread) { search.run(head, scratch[thread], part); });
        std::printf("  %s %.2f", kParts[part - 1], (s - before) * 1e3);
        before = s;
      }
      std::printf("  sum %.2f ms", before * 1e3);
      if (preset.n_subspaces == 2) std::printf("; by pairs %.2f ms", pairs_seconds(search) * 1e3);
      std::printf("\n");
    }
  }
}

void bench_cluster(const Options& o, const CpuTable& table) {
  constexpr u32 kRows = 64;
  for (const Preset& preset : {kPresets[0], kPresets[3]}) {
    const u32 dims = kHeadDim / preset.n_subspaces, n_padded = pq_padded(preset.n_centroids);
    const std::vector<f32> x = normals(u64{kRows} * kHeadDim);
    const std::vector<f32> centroids = normals(u64{dims} * n_padded);
    std::vector<f32> half_norms(n_padded);
    pq_half_norms(centroids.data(), dims, preset.n_centroids, half_norms.data());
    struct Out {
      std::vector<u8> codes;
      std::vector<i64> sums;
      std::vector<u32> counts;
    };
    std::vector<Out> out(o.n_threads);
    for (Out& of_thread : out) {
      of_thread = {std::vector<u8>(kRows), std::vector<i64>(u64{preset.n_centroids} * dims),
                   std::vector<u32>(preset.n_centroids)};
    }
    constexpr u64 kTasks = 2000;  // a task is a tile of whole keys
    const auto seconds = [&](bool adds) {
      return best_seconds(o.n_threads, o.n_reps, kTasks, [&](u64, u32 thread) {
        for (u32 m = 0; m < preset.n_subspaces; ++m) {
          Out& mine = out[thread];
          const f32* rows = x.data() + u64{m} * dims;
          table.pq_assign({rows, kHeadDim, centroids.data(), half_norms.data(), mine.codes.data(),
                           kRows, dims, n_padded});
          if (!adds) continue;
          table.pq_accumulate({rows, kHeadDim, mine.codes.data(), mine.sums.data(),
                               mine.counts.data(), kRows, dims});
        }
      });
    };
    const f64 assign_s = seconds(false), both_s = seconds(true);
    const f64 n_rows = static_cast<f64>(kTasks * kRows);
    std::printf(
        "cluster %-10s isa %s, %u threads: assign %.2f Mkey/s (%.0f GMAC/s), with sums "
        "%.2f Mkey/s\n",
        preset.name, table.isa, o.n_threads, n_rows / assign_s * 1e-6,
        n_rows * kHeadDim * preset.n_centroids / assign_s * 1e-9, n_rows / both_s * 1e-6);
  }
}

Options parse(int argc, char** argv) {
  Options o;
  o.parts = bench::parse_options(argc, argv,
                                 {.texts = {{"--isa", &o.isa}},
                                  .numbers = {{"--threads", &o.n_threads},
                                              {"--reps", &o.n_reps},
                                              {"--group", &o.n_group},
                                              {"--k", &o.k},
                                              {"--layers", &o.n_layers}}});
  if (o.parts.empty()) o.parts = {"score", "step", "cluster"};
  return o;
}

void run(const Options& o) {
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    if (!o.isa.empty() ? o.isa != table.isa : std::string("generic") == table.isa) continue;
    for (const std::string& part : o.parts) {
      if (part == "score") bench_score(o, table);
      if (part == "step") bench_step(o, table);
      if (part == "cluster") bench_cluster(o, table);
    }
  }
}

}  // namespace
}  // namespace tarn::kernels

int main(int argc, char** argv) { tarn::kernels::run(tarn::kernels::parse(argc, argv)); }
