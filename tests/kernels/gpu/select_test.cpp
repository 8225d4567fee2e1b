// Goal    every GPU chooses what the CPU chooses: tables, scores, weights, codes, counts and the
//         best places, by tokens and by pairs of codes, have the CPU families' bits, and attention
//         over gathered slots reads exactly those.
// Method  random keys, codebooks and queries over formats, heads and sizes around a block, a tile
//         and a CTA; the portable bodies are the oracle. What a kernel may not write holds a
//         canary.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "kernels/attn/attn.h"
#include "kernels/pq/pq_cluster.h"
#include "kernels/pq/pq_pairs.h"
#include "kernels/pq/pq_score.h"
#include "kernels/topk/topk.h"
#include "tests/kernels/gpu/gpus.h"
#include "tests/support/seed.h"

namespace tarn::kernels::select_test {
namespace {

using tarn::test::Random;
using test::DeviceArray;

constexpr f32 kCanary = 77.0f;
constexpr u32 kSlack = 37;  // tokens behind the last one, whose codes and scores are not used

struct Case {
  const char* name;
  PqCodeFormat format;
  KvType type;
  u32 n_kv_heads, n_group_heads, n_subspaces, dims, adjacent_dims, code_bits, n_tokens;
  bool has_pairs() const { return n_subspaces == 2 && pq_padded(1u << code_bits) <= 64; }
};
constexpr Case kCases[] = {
    {"the default", PqCodeFormat::packed6, KvType::f16, 2, 4, 2, 32, 64, 6, 700},
    {"one token, one head", PqCodeFormat::bytes, KvType::f16, 1, 1, 1, 8, 8, 1, 1},
    {"few centroids", PqCodeFormat::packed4, KvType::f16, 3, 2, 4, 8, 32, 3, 257},
    {"q8_0, full codes", PqCodeFormat::bytes, KvType::q8_0, 1, 3, 2, 32, 0, 8, 64},
    {"q8_0, packed", PqCodeFormat::packed4, KvType::q8_0, 2, 1, 2, 32, 64, 4, 255},
    {"q4_0", PqCodeFormat::packed6, KvType::q4_0, 2, 2, 2, 48, 64, 6, 130},
    {"over a tile of the sum", PqCodeFormat::packed6, KvType::f16, 1, 2, 2, 8, 0, 5, 2117},
    {"over two turns of the choice", PqCodeFormat::packed6, KvType::f16, 1, 2, 2, 8, 0, 6, 9000},
};

bool same_bits(std::span<const f32> a, std::span<const f32> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// An index of random codebooks and codes on both sides, and the pages that its keys come from.
class World {
 public:
  World(const Case& c, Random& random) : c_(c), n_padded_(pq_padded(1u << c.code_bits)) {
    const auto fill = [&](std::vector<f32>& values, u64 n, f32 scale) {
      values.resize(n);
      for (f32& x : values) x = scale * random.normal();
    };
    fill(q_, u64{n_heads()} * head_dim(), 1.0f);
    codebooks_.assign(u64{c.n_kv_heads} * head_dim() * n_padded_, 0.0f);
    half_norms_.resize(u64{c.n_kv_heads} * c.n_subspaces * n_padded_);
    for (u64 row = 0; row < codebooks_.size() / n_padded_; ++row) {
      for (u32 i = 0; i < 1u << c.code_bits; ++i) codebooks_[row * n_padded_ + i] = random.normal();
    }
    for (u32 book = 0; book < c.n_kv_heads * c.n_subspaces; ++book) {
      pq_half_norms(&codebooks_[u64{book} * c.dims * n_padded_], c.dims, 1u << c.code_bits,
                    &half_norms_[u64{book} * n_padded_]);
    }
    row_bytes_ = pq_row_bytes(c.format, c.n_tokens + kSlack);
    codes_.resize(u64{c.n_kv_heads} * c.n_subspaces * row_bytes_);
    for (u32 row = 0; row < c.n_kv_heads * c.n_subspaces; ++row) {
      for (u32 t = 0; t < c.n_tokens + kSlack; ++t) {
        pq_code_put(c.format, &codes_[row * row_bytes_], t,
                    static_cast<u8>(random.below(1u << c.code_bits)));
      }
    }
  }

  u32 head_dim() const { return c_.n_subspaces * c_.dims; }
  u32 n_heads() const { return c_.n_kv_heads * c_.n_group_heads; }
  u64 lut_elems() const { return u64{c_.n_subspaces} * n_padded_; }
  u64 stride() const { return c_.n_tokens + kSlack; }
  const f32* codebook(u32 kv_head) const {
    return &codebooks_[u64{kv_head} * head_dim() * n_padded_];
  }

  // A key or a query, by places.
  std::vector<f32> placed(const f32* x) const {
    std::vector<f32> out(x, x + head_dim());
    for (u32 i = 0; i < c_.adjacent_dims; ++i) out[i % 2 * (c_.adjacent_dims / 2) + i / 2] = x[i];
    return out;
  }
  std::vector<u32> counts(u32 kv_head, u32 n_rows) const {
    std::vector<u32> counts(u64{n_padded_} * n_padded_);
    const u8* codes = &codes_[u64{kv_head} * c_.n_subspaces * row_bytes_];
    for (u32 t = 0; t < n_rows; ++t) {
      const u32 first = pq_code_get(c_.format, codes, t);
      counts[first * n_padded_ + pq_code_get(c_.format, codes + row_bytes_, t)] += 1;
    }
    return counts;
  }

  // A head's piece: codebooks, half norms, codes and the counts of n_counted rows, 64 bytes apart.
  u64 half_norms_at() const { return u64{head_dim()} * n_padded_ * sizeof(f32) + 64; }
  u64 codes_at() const { return half_norms_at() + lut_elems() * sizeof(f32) + 64; }
  u64 counts_at() const { return codes_at() + c_.n_subspaces * row_bytes_ + 64; }
  u64 head_bytes() const { return counts_at() + u64{n_padded_} * n_padded_ * sizeof(u32) + 64; }
  // The second of two tables.
  static constexpr u32 kTable = 1;
  std::vector<u8> piece(u32 n_counted) const {
    const u64 table_bytes = c_.n_kv_heads * head_bytes();
    std::vector<u8> bytes(2 * table_bytes, 0xee);
    for (u32 h = 0; h < c_.n_kv_heads; ++h) {
      u8* head = &bytes[kTable * table_bytes + h * head_bytes()];
      std::memcpy(head, codebook(h), u64{head_dim()} * n_padded_ * sizeof(f32));
      std::memcpy(head + half_norms_at(), &half_norms_[h * lut_elems()], lut_elems() * sizeof(f32));
      std::memcpy(head + codes_at(), &codes_[h * c_.n_subspaces * row_bytes_],
                  c_.n_subspaces * row_bytes_);
      if (!c_.has_pairs()) continue;
      const std::vector<u32> its_counts = counts(h, n_counted);
      std::memcpy(head + counts_at(), its_counts.data(), its_counts.size() * sizeof(u32));
    }
    return bytes;
  }
  GpuPqIndex index(u8* bytes, const u32* table) const {
    return {.format = c_.format,
            .n_kv_heads = c_.n_kv_heads,
            .n_group_heads = c_.n_group_heads,
            .n_subspaces = c_.n_subspaces,
            .dims = c_.dims,
            .adjacent_dims = c_.adjacent_dims,
            .n_padded = n_padded_,
            .heads = bytes,
            .head_stride = head_bytes(),
            .table_stride = c_.n_kv_heads * head_bytes(),
            .table = table,
            .half_norms_at = half_norms_at(),
            .codes_at = codes_at(),
            .counts_at = c_.has_pairs() ? counts_at() : 0,
            .codes_stride = row_bytes_};
  }

  const Case& c_;
  u32 n_padded_;
  u64 row_bytes_ = 0;
  std::vector<f32> q_, codebooks_, half_norms_;
  std::vector<u8> codes_;
};

// The results of the portable bodies.
struct Expected {
  std::vector<f32> lut, scores, p, weights;

  Expected(const World& w, f32 scale) {
    const Case& c = w.c_;
    const u32 n_group = c.n_group_heads;
    lut.resize(w.n_heads() * w.lut_elems());
    scores.assign(w.n_heads() * w.stride(), kCanary);
    weights.assign(c.n_kv_heads * w.stride(), kCanary);
    for (u32 h = 0; h < c.n_kv_heads; ++h) {
      std::vector<f32> q;
      for (u32 g = 0; g < n_group; ++g) {
        const std::vector<f32> placed = w.placed(&w.q_[(u64{h} * n_group + g) * w.head_dim()]);
        q.insert(q.end(), placed.begin(), placed.end());
      }
      pq_lut_generic({.q = q.data(),
                      .q_stride = w.head_dim(),
                      .codebook = w.codebook(h),
                      .lut = &lut[h * n_group * w.lut_elems()],
                      .n_heads = n_group,
                      .n_subspaces = c.n_subspaces,
                      .dims = c.dims,
                      .n_padded = w.n_padded_});
      pq_score_generic({.format = c.format,
                        .codes = &w.codes_[h * c.n_subspaces * w.row_bytes_],
                        .codes_stride = w.row_bytes_,
                        .lut = &lut[h * n_group * w.lut_elems()],
                        .scores = &scores[h * n_group * w.stride()],
                        .scores_stride = w.stride(),
                        .n_tokens = c.n_tokens,
                        .n_heads = n_group,
                        .n_subspaces = c.n_subspaces,
                        .n_padded = w.n_padded_,
                        .scale = scale});
    }
    p = scores;
    for (u32 h = 0; h < c.n_kv_heads; ++h) {
      pq_weigh_generic({.scores = &p[h * n_group * w.stride()],
                        .scores_stride = w.stride(),
                        .weights = &weights[h * w.stride()],
                        .n_tokens = c.n_tokens,
                        .n_heads = n_group});
    }
  }
};

TEST_CASE("tables, scores and weights have the CPU's bits") {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      World w(c, random);
      const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(w.head_dim()));
      const Expected want(w, scale);
      const DeviceArray<f32> q(gpu, w.q_);
      const DeviceArray<u8> piece(gpu, w.piece(c.n_tokens));
      const DeviceArray<u32> table(gpu, {World::kTable});
      const DeviceArray<f32> lut(gpu, want.lut.size(), kCanary);
      const DeviceArray<f32> scores(gpu, want.scores.size(), kCanary);
      const DeviceArray<f32> weights(gpu, want.weights.size(), kCanary);
      const DeviceArray<u32> n_tokens(gpu, {c.n_tokens});
      const GpuPqIndex index = w.index(piece.data(), table.data());
      gpu.table->pq_lut({.index = index, .q = q.data(), .lut = lut.data()}, gpu.stream);
      CHECK(same_bits(lut.host(), want.lut));
      gpu.table->pq_score({.index = index,
                           .lut = lut.data(),
                           .scores = scores.data(),
                           .scores_stride = w.stride(),
                           .n_tokens = n_tokens.data(),
                           .tokens_max = c.n_tokens + kSlack,
                           .scale = scale},
                          gpu.stream);
      CHECK(same_bits(scores.host(), want.scores));
      gpu.table->pq_weigh({.scores = scores.data(),
                           .scores_stride = w.stride(),
                           .weights = weights.data(),
                           .weights_stride = w.stride(),
                           .n_tokens = n_tokens.data(),
                           .n_kv_heads = c.n_kv_heads,
                           .n_group_heads = c.n_group_heads},
                          gpu.stream);
      CHECK(same_bits(scores.host(), want.p));
      CHECK(same_bits(weights.host(), want.weights));
    }
  }
}

TEST_CASE("the choice by pairs of codes is the CPU's") {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      if (!c.has_pairs()) continue;
      CAPTURE(c.name);
      World w(c, random);
      const f32 scale = 1.0f / __builtin_sqrtf(static_cast<f32>(w.head_dim()));
      const Expected want(w, scale);
      const DeviceArray<u8> piece(gpu, w.piece(c.n_tokens));
      const DeviceArray<u32> table(gpu, {World::kTable}), n_tokens(gpu, {c.n_tokens});
      const DeviceArray<f32> lut(gpu, want.lut);
      for (const u32 k : {0u, 1u, c.n_tokens / 3, c.n_tokens, c.n_tokens + 1}) {
        CAPTURE(k);
        const u64 out_stride = k + 3;
        std::vector<u32> places(c.n_kv_heads * out_stride, 77);
        alignas(64) static u8 scratch[kPqPairScratchBytes];
        for (u32 h = 0; h < c.n_kv_heads; ++h) {
          const std::vector<u32> counts = w.counts(h, c.n_tokens);
          pq_pairs_generic({.format = c.format,
                            .codes = &w.codes_[u64{h} * 2 * w.row_bytes_],
                            .codes_stride = w.row_bytes_,
                            .lut = &want.lut[h * c.n_group_heads * w.lut_elems()],
                            .counts = counts.data(),
                            .scratch = scratch,
                            .out = &places[h * out_stride],
                            .n_tokens = c.n_tokens,
                            .n_heads = c.n_group_heads,
                            .side = w.n_padded_,
                            .k = k,
                            .scale = scale});
        }
        const DeviceArray<u32> out(gpu, places.size(), 77), device_k(gpu, {k});
        gpu.table->pq_pairs({.index = w.index(piece.data(), table.data()),
                             .lut = lut.data(),
                             .out = out.data(),
                             .out_stride = out_stride,
                             .n_tokens = n_tokens.data(),
                             .k = device_k.data(),
                             .scale = scale},
                            gpu.stream);
        CHECK(out.host() == places);
      }
    }
  }
}

// Pages with random K and V of n slots in every KV head, and their addresses on a GPU.
struct Pages {
  static constexpr u32 kTokens = 32;

  Pages(const test::Gpu& gpu, const Case& c, u32 head_dim, u32 n_slots, Random& random)
      : vector(kv_vector_bytes(c.type, head_dim)), page(kTokens * 2 * vector + 16) {
    std::vector<u8*> addresses;
    std::vector<f32> values(2 * u64{head_dim});
    for (u32 g = 0; g < (n_slots + kTokens - 1) / kTokens; ++g) {
      groups.emplace_back(c.n_kv_heads * page);
      for (u32 i = 0; i < c.n_kv_heads * kTokens; ++i) {
        for (f32& x : values) x = random.normal();
        u8* to = &groups.back()[i / kTokens * page + i % kTokens * 2 * vector];
        kv_store_generic({c.type, values.data(), values.data() + head_dim, to, head_dim});
      }
      on_device.push_back(std::make_unique<DeviceArray<u8>>(gpu, groups.back()));
      addresses.push_back(on_device.back()->data());
    }
    table = std::make_unique<DeviceArray<u8*>>(gpu, addresses);
    tables = std::make_unique<DeviceArray<u32>>(gpu, std::vector<u32>{9, 0});
    gpu_pages = {.type = c.type,
                 .page_tokens = kTokens,
                 .head_dim = head_dim,
                 .n_kv_heads = c.n_kv_heads,
                 .groups = table->data(),
                 .table_stride = addresses.size(),
                 .group_stride = 1,
                 .page_stride = page,
                 .tables = tables->data()};
  }
  const u8* slot(u32 kv_head, u32 slot_idx) const {
    return &groups[slot_idx / kTokens][kv_head * page + slot_idx % kTokens * 2 * vector];
  }

  u64 vector, page;
  std::vector<std::vector<u8>> groups;
  std::vector<std::unique_ptr<DeviceArray<u8>>> on_device;
  std::unique_ptr<DeviceArray<u8*>> table;
  std::unique_ptr<DeviceArray<u32>> tables;
  GpuPages gpu_pages{};
};
constexpr u32 kRow = 1;  // whose table is the pages'

// Where groups of each layer begin, in the second of two tables: a layer has so many of the heads.
struct Groups {
  Groups(const test::Gpu& gpu, const Pages& pages, u32 n_layers)
      : table_stride(pages.groups.size() * n_layers), addresses(gpu, all(pages, n_layers)) {}
  static std::vector<u8*> all(const Pages& pages, u32 n_layers) {
    const u64 n_heads = pages.gpu_pages.n_kv_heads;
    std::vector<u8*> out(pages.groups.size() * n_layers, nullptr);
    for (const auto& group : pages.on_device) {
      for (u32 l = 0; l < n_layers; ++l) {
        out.push_back(group->data() + l * (n_heads / n_layers) * pages.page);
      }
    }
    return out;
  }
  u64 table_stride;
  DeviceArray<u8*> addresses;
};

TEST_CASE("codes of new keys are the CPU's, and no other code changes") {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      World w(c, random);
      // Over the half of a block; their keys lie on both sides of a page's end. Four of them had
      // other codes before, which counted.
      constexpr u32 kNew = 5, kSlotBegin = 30, kCut = 4;
      const u32 first = c.n_tokens > 30 ? 30 : 0;
      const Pages pages(gpu, c, w.head_dim(), kSlotBegin + first + kNew, random);
      if (c.code_bits == 8) {  // no centroid wins, and two that are equal
        std::fill_n(&w.half_norms_[0], w.n_padded_, std::numeric_limits<f32>::infinity());
        for (u64 row = w.codebooks_.size() / w.n_padded_ / 2;
             row < w.codebooks_.size() / w.n_padded_; ++row) {
          f32* values = &w.codebooks_[row * w.n_padded_];
          std::copy_n(values, w.n_padded_ / 2, values + w.n_padded_ / 2);
        }
        f32* norms = &w.half_norms_[w.n_padded_];
        std::copy_n(norms, w.n_padded_ / 2, norms + w.n_padded_ / 2);
      }
      const DeviceArray<u8> piece(gpu, w.piece(first + kCut));
      std::vector<f32> key(w.head_dim());
      for (u32 h = 0; h < c.n_kv_heads; ++h) {
        for (u32 t = first; t < first + kNew; ++t) {
          pq_load_generic({.type = kv_tensor_type(c.type),
                           .rows = pages.slot(h, kSlotBegin + t),
                           .stride_bytes = 0,
                           .x = key.data(),
                           .n_rows = 1,
                           .dims = w.head_dim()});
          const std::vector<f32> x = w.placed(key.data());
          for (u32 m = 0; m < c.n_subspaces; ++m) {
            const u64 book = u64{h} * c.n_subspaces + m;
            u8 code = 0;
            pq_assign_generic({.x = &x[u64{m} * c.dims],
                               .x_stride = w.head_dim(),
                               .centroids = &w.codebooks_[book * c.dims * w.n_padded_],
                               .half_norms = &w.half_norms_[book * w.n_padded_],
                               .codes = &code,
                               .n_rows = 1,
                               .dims = c.dims,
                               .n_padded = w.n_padded_});
            pq_code_put(c.format, &w.codes_[book * w.row_bytes_], t, code);
          }
        }
      }
      const DeviceArray<u32> table(gpu, {World::kTable});
      const DeviceArray<GpuPqNewRows> rows(gpu, {{kSlotBegin, first, first + kNew, first + kCut}});
      // Each KV head a layer of its own, once, then all of them in one.
      for (const u32 n_layers : {c.n_kv_heads, 1u}) {
        CAPTURE(n_layers);
        const DeviceArray<u8> bytes(gpu, piece.host());
        GpuPqIndex index = w.index(bytes.data(), table.data());
        index.n_kv_heads /= n_layers;
        const Groups groups(gpu, pages, n_layers);
        gpu.table->pq_assign({.index = index,
                              .keys = {.type = kv_tensor_type(c.type),
                                       .page_tokens = Pages::kTokens,
                                       .groups = groups.addresses.data(),
                                       .table_stride = groups.table_stride,
                                       .group_stride = n_layers,
                                       .page_stride = pages.page,
                                       .slot_stride = 2 * pages.vector},
                              .n_cache_layers = n_layers,
                              .rows = rows.data()},
                             gpu.stream);
        CHECK(bytes.host() == w.piece(first + kNew));
      }
    }
  }
}

TEST_CASE("the best places are the CPU's, ascending, ties to the lower one") {
  struct Places {
    u32 n, k, levels;
  };
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Places& c :
         {Places{1, 1, 9}, Places{5, 9, 9}, Places{600, 0, 9}, Places{511, 100, 100000},
          Places{1300, 513, 3}, Places{1025, 1024, 2}, Places{2100, 7, 1},
          Places{900, 450, 1000000}, Places{4096, 2048, 5}, Places{9000, 5000, 7}}) {
      CAPTURE(c.n);
      CAPTURE(c.k);
      constexpr u32 kRows = 2;
      const u64 stride = c.n + kSlack, out_stride = c.k + 3;
      std::vector<f32> values(kRows * stride, 1e30f);
      std::vector<u32> want(kRows * out_stride, 77);
      std::vector<u8> scratch(kTopKScratchBytes + 64);
      for (u32 row = 0; row < kRows; ++row) {
        f32* its = &values[row * stride];
        for (u32 i = 0; i < c.n; ++i) {
          its[i] = static_cast<f32>(random.below(c.levels)) - static_cast<f32>(c.levels / 2);
          if (its[i] == 0.0f && random.below(2) == 0) its[i] = -0.0f;
          if (random.below(50) == 0) its[i] = -std::numeric_limits<f32>::infinity();
        }
        top_k_generic(
            {its, &want[row * out_stride],
             reinterpret_cast<u8*>((reinterpret_cast<u64>(scratch.data()) + 63) / 64 * 64), c.n,
             c.k});
      }
      const DeviceArray<f32> device(gpu, values);
      const DeviceArray<u32> out(gpu, want.size(), 77), n(gpu, {c.n}), k(gpu, {c.k});
      gpu.table->top_k({.values = device.data(),
                        .values_stride = stride,
                        .out = out.data(),
                        .out_stride = out_stride,
                        .n = n.data(),
                        .k = k.data(),
                        .n_rows = kRows},
                       gpu.stream);
      CHECK(out.host() == want);
    }
  }
}

TEST_CASE("chosen slots lie by rank, and attention over all of them is full attention's") {
  Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u32 head_dim = c.n_subspaces * c.dims;
      const u32 n_slots = std::min(c.n_tokens, 300u);
      const Pages pages(gpu, c, head_dim, n_slots, random);
      for (const u32 one_of : {3u, 1u}) {  // of so many slots one is chosen
        CAPTURE(one_of);
        const u32 n_chosen = (n_slots + one_of - 1) / one_of, slots_max = n_chosen + kSlack;
        const u64 n_groups = (slots_max + Pages::kTokens - 1) / Pages::kTokens;
        // A third of the ranks are sinks, a fourth are the last slots.
        const u32 n_sinks = n_chosen / 3, n_local = n_chosen / 4;
        const GpuSegments segments{.n_sinks = n_sinks,
                                   .n_places = n_chosen - n_sinks - n_local,
                                   .local_begin = n_slots - n_local,
                                   .n_slots = n_chosen};
        std::vector<u32> places(u64{c.n_kv_heads} * slots_max, ~0u);
        std::vector<u8> want(n_groups * c.n_kv_heads * pages.page, 0xaa);
        for (u32 h = 0; h < c.n_kv_heads; ++h) {
          for (u32 rank = 0; rank < n_chosen; ++rank) {
            const u32 place = rank - n_sinks;
            u32 slot = std::min(n_slots - 1, rank * one_of + h % one_of);
            if (rank < n_sinks) slot = rank;
            if (rank + n_local >= n_chosen) slot = n_slots - (n_chosen - rank);
            if (rank >= n_sinks && place < segments.n_places) {
              places[u64{h} * slots_max + place] = slot - n_sinks;
            }
            std::memcpy(&want[(u64{rank / Pages::kTokens} * c.n_kv_heads + h) * pages.page +
                              rank % Pages::kTokens * 2 * pages.vector],
                        pages.slot(h, slot), 2 * pages.vector);
          }
        }
        const DeviceArray<u32> device_places(gpu, places);
        const DeviceArray<GpuSegments> device_segments(gpu, {segments});
        const DeviceArray<u8> out(gpu, want.size(), u8{0xaa});
        gpu.table->gather_slots({.pages = pages.gpu_pages,
                                 .row = kRow,
                                 .places = device_places.data(),
                                 .places_stride = slots_max,
                                 .segments = device_segments.data(),
                                 .slots_max = slots_max,
                                 .out = out.data()},
                                gpu.stream);
        CHECK(out.host() == want);
        if (one_of != 1) continue;
        std::vector<u8*> addresses;
        for (u64 g = 0; g < n_groups; ++g) {
          addresses.push_back(out.data() + g * c.n_kv_heads * pages.page);
        }
        const DeviceArray<u8*> groups(gpu, addresses);
        GpuPages gathered = pages.gpu_pages;
        gathered.groups = groups.data();
        std::vector<f32> q(u64{c.n_kv_heads} * c.n_group_heads * head_dim);
        for (f32& x : q) x = random.normal();
        // The table of row 0 of each is the one that is looked at.
        const DeviceArray<u32> table(gpu, {0});
        const auto attend = [&](GpuPages over) {
          over.tables = table.data();
          const DeviceArray<f32> device_q(gpu, q), result(gpu, q.size(), kCanary);
          const DeviceArray<u32> visible(gpu, {n_chosen}), n_rows(gpu, {1});
          const DeviceArray<u8> partial(
              gpu, gpu_attn_partial_bytes(1, c.n_kv_heads * c.n_group_heads, 2, head_dim), u8{0});
          gpu.table->attend({.pages = over,
                             .q = device_q.data(),
                             .q_stride = q.size(),
                             .out = result.data(),
                             .out_stride = q.size(),
                             .visible = visible.data(),
                             .n_rows = n_rows.data(),
                             .rows_max = 1,
                             .n_group_heads = c.n_group_heads,
                             .spans_max = 2,
                             .scale = 0.2f,
                             .partial = reinterpret_cast<f32*>(partial.data())},
                            gpu.stream);
          return result.host();
        };
        CHECK(same_bits(attend(gathered), attend(pages.gpu_pages)));
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::select_test
