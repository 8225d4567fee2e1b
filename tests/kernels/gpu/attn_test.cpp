// Goal    every GPU attends as kernels/attn/attn_gpu.h says, with the same bits whatever the batch,
//         the number of spans in the grid and the place of the pages, at once or in parts; and its
//         append writes the bytes of the CPU's kv_store, and its read widens them as the CPU does.
// Method  an f64 oracle over the decoded pages; slots around a tile, a page and a span; all KV
//         types; every group in memory of its own, so AddressSanitizer sees a step outside;
//         canaries in unused rows and gaps; NaN in every slot that a row may not see.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "kernels/common/half.h"
#include "tests/kernels/gpu/gpus.h"
#include "tests/kernels/gpu/random_acts.h"
#include "tests/support/seed.h"

namespace tarn::kernels::attn_test {
namespace {

using test::DeviceArray;

struct Case {
  const char* name;
  KvType type;
  u32 head_dim, n_kv_heads, n_group_heads, page_tokens;
  std::vector<u32> visible;
  f32 higher = 0.0f;  // added to every score
};

// clang-format off
const Case kCases[] = {
    // name                               type         dim kv group page visible
    {"f16: one slot",                     KvType::f16,  64, 1, 1,  32, {1}},
    {"f16: around a tile",                KvType::f16,  16, 2, 2,  64, {31, 32, 33}},
    {"f16: around a page",                KvType::f16,  80, 1, 3,  64, {63, 64, 65}},
    {"f16: around a span",                KvType::f16,  32, 1, 4,  64, {255, 256, 257}},
    {"f16: a model's head",               KvType::f16, 128, 1, 4,  64, {70}},
    {"f16: seven heads, no slot",         KvType::f16,  64, 2, 7,  32, {0, 40}},
    {"f16: nine heads are two chunks",    KvType::f16,   8, 1, 9, 128, {34}},
    {"f16: the largest head",             KvType::f16, 256, 1, 2,  64, {66}},
    {"f16: dims that leave threads over", KvType::f16,  96, 1, 1, 256, {300}},
    {"f16: spans for nine turns of merge", KvType::f16,  8, 1, 1, 256, {32800}},
    {"f16: ends in several parts",        KvType::f16,   8, 2, 2, 128, {0, 5, 4096, 4097, 8300}},
    {"q8_0: the largest head, two parts", KvType::q8_0, 256, 1, 1, 32, {4100}},
    {"f16: scores whose exp is infinite", KvType::f16,  32, 1, 2,  64, {1, 300, 520}, 90.0f},
    {"q8_0: one slot",                    KvType::q8_0, 32, 1, 1,  32, {1}},
    {"q8_0: around a tile",               KvType::q8_0, 64, 2, 2,  64, {31, 32, 33}},
    {"q8_0: around a span",               KvType::q8_0, 32, 1, 5,  64, {255, 256, 257}},
    {"q8_0: a model's head",              KvType::q8_0, 128, 1, 4, 64, {97}},
    {"q8_0: the largest head",            KvType::q8_0, 256, 1, 8, 32, {65}},
    {"q4_0: one slot",                    KvType::q4_0, 32, 1, 1,  32, {1}},
    {"q4_0: around a tile",               KvType::q4_0, 64, 2, 2,  64, {31, 32, 33}},
    {"q4_0: an odd number of blocks",     KvType::q4_0, 96, 2, 3,  64, {255, 256, 257}},
    {"q4_0: a model's head",              KvType::q4_0, 128, 1, 4, 64, {97}},
    {"q4_0: the largest head, two parts", KvType::q4_0, 256, 1, 1, 32, {4100}},
};
// clang-format on

constexpr f32 kCanary = -12345.0f;
constexpr f64 kEpsilonF32 = std::numeric_limits<f32>::epsilon();
constexpr u32 kGap = 3;

f64 decode(KvType type, const u8* vector, u32 i) {
  u16 half;
  if (type == KvType::f16) {
    std::memcpy(&half, vector + 2 * i, sizeof half);
    return f64{f16_to_f32(half)};
  }
  const u8* block = vector + i / 32 * (type == KvType::q8_0 ? 34 : 18);
  std::memcpy(&half, block, sizeof half);
  const i32 q = type == KvType::q8_0 ? static_cast<i8>(block[2 + i % 32])
                                     : (block[2 + i % 16] >> (i % 32 < 16 ? 0 : 4) & 15) - 8;
  return f64{f16_to_f32(half)} * q;
}

class Problem {
 public:
  Problem(const Case& c, tarn::test::Random& random) : case_(c) {
    vector_bytes_ = kv_vector_bytes(c.type, c.head_dim);
    page_bytes_ = 2 * vector_bytes_ * c.page_tokens;
    n_rows_ = static_cast<u32>(c.visible.size());
    n_heads_ = c.n_kv_heads * c.n_group_heads;
    stride_ = u64{n_heads_} * c.head_dim + kGap;
    q_.resize(stride_ * n_rows_);
    for (f32& x : q_) x = random.normal() * 2.0f;
    constexpr f32 kHigherKey = 8.0f;  // K's first element then
    for (u64 at = 0; c.higher > 0 && at < u64{n_rows_} * n_heads_; ++at) {
      const u64 row = at / n_heads_, head = at % n_heads_;
      q_[row * stride_ + head * c.head_dim] = c.higher / (kHigherKey * scale());
    }
    std::vector<f32> k(c.head_dim), v(c.head_dim);
    for (u32 n = 0; n < n_rows_; ++n) {
      const u32 n_groups = c.visible[n] / c.page_tokens + 1;
      // 0xff is NaN in f16, as d of a block too, so the use of an unseen slot is found out.
      groups_.emplace_back(n_groups, std::vector<u8>(page_bytes_ * c.n_kv_heads, 0xff));
      for (u32 t = 0; t < c.visible[n]; ++t) {
        for (u32 h = 0; h < c.n_kv_heads; ++h) {
          for (f32& x : k) x = random.normal();
          if (c.higher > 0) k[0] = kHigherKey;
          for (f32& x : v) x = random.normal() + 0.5f;
          kv_store_generic({c.type, k.data(), v.data(), slot(n, h, t), c.head_dim});
        }
      }
    }
  }

  // The same queries, keys and values, of which rows see less.
  Problem as(const Case& less) const {
    Problem problem = *this;
    problem.case_ = less;
    return problem;
  }

  // The rows are of one sequence, which is that of the row that sees most.
  void become_one_sequence() {
    const auto longest = std::ranges::max_element(case_.visible) - case_.visible.begin();
    for (auto& groups : groups_) groups = groups_[static_cast<u64>(longest)];
  }

  // Rows [begin, begin + n) as one launch, in tables given out from the last row on if `reversed`;
  // or as one for each part of so many spans, when others' groups are nowhere.
  struct Launch {
    u32 begin, n_rows, rows_max, spans_max;
    bool reversed;
    u32 part_spans = 0;
    u32 n_visible_less = 0;  // slots that each KV head sees less than the one before it
    bool rows_share = false;
  };
  struct Output {
    std::vector<f32> out;
    std::vector<i8> q;
    std::vector<U32x2> side;
  };
  Output run(const test::Gpu& gpu, const Launch& launch) const {
    u64 table_stride = 0;
    for (const auto& groups : groups_) table_stride = std::max<u64>(table_stride, groups.size());
    std::vector<std::unique_ptr<DeviceArray<u8>>> memory;
    constexpr u32 kGroupStride = 3;  // of other layers' groups between
    table_stride *= kGroupStride;
    std::vector<u8*> addresses(table_stride * launch.n_rows + 1, nullptr);
    const u32 visible_stride = launch.n_visible_less == 0 ? 0 : launch.rows_max;
    const u32 n_visible = visible_stride == 0 ? 1 : case_.n_kv_heads;
    std::vector<u32> tables(launch.rows_max), visible(launch.rows_max * n_visible, 1u << 30);
    for (u32 row = 0; row < launch.n_rows; ++row) {
      const u32 n = launch.begin + row;
      tables[row] = launch.reversed ? launch.n_rows - 1 - row : row;
      for (u32 h = 0; h < n_visible; ++h) {
        const u32 n_less = h * launch.n_visible_less;
        visible[h * visible_stride + row] = case_.visible[n] - std::min(case_.visible[n], n_less);
      }
      for (u64 g = 0; g < groups_[n].size(); ++g) {
        memory.push_back(std::make_unique<DeviceArray<u8>>(gpu, groups_[n][g]));
        addresses[tables[row] * table_stride + g * kGroupStride] = memory.back()->data();
      }
    }
    std::vector<f32> q_rows(stride_ * launch.rows_max, kCanary);
    for (u64 i = 0; i < launch.n_rows * stride_; ++i) {
      q_rows[i] = q_[launch.begin * stride_ + i];
    }
    const DeviceArray<f32> q(gpu, q_rows), out(gpu, q_rows.size(), kCanary);
    const u64 k = u64{n_heads_} * case_.head_dim;
    const DeviceArray<i8> quantized(gpu, launch.rows_max * k, i8{0});
    const DeviceArray<U32x2> side(gpu, launch.rows_max * k / 32, {{0, 0}});
    const DeviceArray<u32> device_tables(gpu, tables), device_visible(gpu, visible);
    const DeviceArray<u32> n_rows(gpu, {launch.n_rows});
    const u32 part_spans = launch.part_spans == 0 ? launch.spans_max : launch.part_spans;
    const DeviceArray<u8> partial(
        gpu, gpu_attn_partial_bytes(launch.rows_max, n_heads_, part_spans, case_.head_dim),
        u8{0xff});
    const DeviceArray<f32> states(gpu, u64{launch.rows_max} * n_heads_ * (case_.head_dim + 2),
                                  std::numeric_limits<f32>::quiet_NaN());
    const bool quantizes = case_.head_dim % 32 == 0;
    for (u32 span = 0; span < launch.spans_max; span += part_spans) {
      const u64 group_begin = u64{span} * kGpuSpanSlots / case_.page_tokens;
      const u64 group_end = u64{span + part_spans} * kGpuSpanSlots / case_.page_tokens;
      std::vector<u8*> here = addresses;
      for (u64 i = 0; i < here.size(); ++i) {
        const u64 group = i % table_stride / kGroupStride;
        if (group < group_begin || group >= group_end) here[i] = nullptr;
      }
      const DeviceArray<u8*> groups(gpu, here);
      gpu.table->attend(
          {.pages = pages(groups.data(), table_stride, kGroupStride, device_tables.data()),
           .q = q.data(),
           .q_stride = stride_,
           .out = out.data(),
           .out_stride = stride_,
           .quantized = {quantizes ? quantized.data() : nullptr, side.data()},
           .visible = device_visible.data(),
           .n_rows = n_rows.data(),
           .rows_max = launch.rows_max,
           .n_group_heads = case_.n_group_heads,
           .spans_max = std::min(part_spans, launch.spans_max - span),
           .scale = scale(),
           .partial = reinterpret_cast<f32*>(partial.data()),
           .span_begin = span,
           .states = launch.part_spans == 0 ? nullptr : states.data(),
           .visible_stride = visible_stride,
           .rows_share = launch.rows_share},
          gpu.stream);
      (void)out.host();  // before the table is given back
    }
    return {out.host(), quantized.host(), side.host()};
  }

  GpuPages pages(u8* const* groups, u64 table_stride, u32 group_stride, const u32* tables) const {
    return {.type = case_.type,
            .page_tokens = case_.page_tokens,
            .head_dim = case_.head_dim,
            .n_kv_heads = case_.n_kv_heads,
            .groups = groups,
            .table_stride = table_stride,
            .group_stride = group_stride,
            .page_stride = page_bytes_,
            .tables = tables};
  }

  void check_against_oracle(const std::vector<f32>& out) {
    for (u64 at = 0; at < out.size(); ++at) {
      if (at / stride_ >= n_rows_ || at % stride_ >= stride_ - kGap) REQUIRE(out[at] == kCanary);
    }
    for (u32 n = 0; n < n_rows_; ++n) {
      for (u32 h = 0; h < n_heads_; ++h) check_head(out, n, h);
    }
  }

  u32 spans() const {
    u32 most = 1;
    for (const u32 v : case_.visible) most = std::max(most, (v + 255) / 256);
    return most;
  }
  u32 n_rows() const { return n_rows_; }
  u64 stride() const { return stride_; }
  u32 k() const { return n_heads_ * case_.head_dim; }
  f32 scale() const { return 1.0f / std::sqrt(static_cast<f32>(case_.head_dim)); }

 private:
  u8* slot(u32 n, u32 kv_head, u32 t) {
    return groups_[n][t / case_.page_tokens].data() + kv_head * page_bytes_ +
           t % case_.page_tokens * 2 * vector_bytes_;
  }

  void check_head(const std::vector<f32>& out, u32 n, u32 h) {
    const u32 visible = case_.visible[n], d = case_.head_dim;
    const u64 first = n * stride_ + u64{h} * d;
    std::vector<f64> weights(visible), want(d, 0.0);
    f64 magnitude = 0.0, v_max = 0.0, sum = 0.0;
    f64 max = -std::numeric_limits<f64>::infinity();
    for (u32 t = 0; t < visible; ++t) {
      const u8* k = slot(n, h / case_.n_group_heads, t);
      f64 terms = 0.0;
      for (u32 i = 0; i < d; ++i) {
        const f64 term = f64{q_[first + i]} * decode(case_.type, k, i) * f64{scale()};
        weights[t] += term;
        terms += std::abs(term);
      }
      magnitude = std::max(magnitude, terms);
      max = std::max(max, weights[t]);
    }
    for (u32 t = 0; t < visible; ++t) {
      const u8* v = slot(n, h / case_.n_group_heads, t) + vector_bytes_;
      weights[t] = std::exp(weights[t] - max);
      sum += weights[t];
      for (u32 i = 0; i < d; ++i) {
        want[i] += weights[t] * decode(case_.type, v, i);
        v_max = std::max(v_max, std::abs(decode(case_.type, v, i)));
      }
    }
    const f64 n_tiles = (visible + 15) / 16, n_spans = (visible + 255) / 256;
    // As the header promises.
    const f64 rounding = case_.type == KvType::f16 ? 0.0 : std::ldexp(magnitude + 1, -11);
    const f64 sums = (d + 8) * magnitude + 32 * (n_tiles + n_spans) + 64 * n_spans + 64;
    const f64 bound = v_max * (kEpsilonF32 * sums + rounding);
    for (u32 i = 0; i < d; ++i) {
      const f64 expected = visible == 0 ? 0.0 : want[i] / sum;
      REQUIRE(std::abs(f64{out[first + i]} - expected) <= bound);
    }
  }

  Case case_;
  u64 vector_bytes_, page_bytes_, stride_;
  u32 n_rows_, n_heads_;
  std::vector<f32> q_;
  std::vector<std::vector<std::vector<u8>>> groups_;  // of each row's sequence
};

TEST_CASE("attend agrees with the f64 oracle on every GPU, and its quantised output with its own") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      Problem p(c, random);
      const u32 n = p.n_rows();
      const Problem::Output got = p.run(gpu, {0, n, n + 1, p.spans(), false});
      p.check_against_oracle(got.out);
      if (c.head_dim % 32 != 0) continue;
      const test::HostActs acts = test::quantize_on_host(got.out, p.stride(), n, p.k());
      CHECK(std::equal(acts.q.begin(), acts.q.end(), got.q.begin()));
      CHECK(std::memcmp(acts.side.data(), got.side.data(), acts.side.size() * 8) == 0);
    }
  }
}

TEST_CASE("a row alone, more spans in the grid and other places of pages give the same bits") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : kCases) {
      if (c.visible.size() < 2) continue;
      CAPTURE(c.name);
      Problem p(c, random);
      const u32 n = p.n_rows();
      const auto batch = p.run(gpu, {0, n, n, p.spans(), false}).out;
      const auto other = p.run(gpu, {0, n, n + 2, p.spans() + 3, true}).out;
      CHECK(std::memcmp(batch.data(), other.data(), batch.size() * sizeof(f32)) == 0);
      for (u32 row = 0; row < n; ++row) {
        const auto alone = p.run(gpu, {row, 1, 1, p.spans() + row, false}).out;
        CHECK(std::memcmp(alone.data(), &batch[row * p.stride()], p.stride() * sizeof(f32)) == 0);
      }
    }
  }
}

TEST_CASE("rows of one sequence that share tiles have the bits of each row by itself") {
  // clang-format off
  const Case cases[] = {
      // name                           type         dim kv group page visible
      {"a model's head, two launches' rows", KvType::f16, 128, 1, 4, 64,
                                                  {1, 15, 16, 17, 255, 256, 257, 520, 521}},
      {"one q head, no slot",           KvType::f16,  64, 2, 1,  32, {0, 5, 31, 32, 33, 34, 35, 300}},
      {"three q heads",                 KvType::f16,  80, 1, 3,  64, {63, 64, 65, 66, 67}},
      {"nine q heads",                  KvType::f16,   8, 1, 9, 128, {34, 35, 36}},
      {"the largest head",              KvType::f16, 256, 1, 2,  64, {65, 66, 67}},
      {"descending, over two parts",    KvType::f16,   8, 1, 4, 128, {4200, 4100, 4096, 4095, 300}},
      {"q8_0, five q heads",            KvType::q8_0, 64, 1, 5,  64, {254, 255, 256, 257, 258}},
      {"q8_0, a model's head",          KvType::q8_0, 128, 2, 4, 32, {30, 31, 32, 33}},
      {"q4_0, two q heads",             KvType::q4_0, 128, 1, 2, 64, {97, 98, 99, 100, 101}},
  };
  // clang-format on
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : cases) {
      CAPTURE(c.name);
      Problem p(c, random);
      p.become_one_sequence();
      const u32 n = p.n_rows();
      const auto alone = p.run(gpu, {0, n, n, p.spans(), false}).out;
      p.check_against_oracle(alone);
      for (const u32 part_spans : {0u, kGpuMergeSpans}) {
        const auto shared = p.run(gpu, {.begin = 0,
                                        .n_rows = n,
                                        .rows_max = n + 2,
                                        .spans_max = p.spans() + 1,
                                        .reversed = false,
                                        .part_spans = part_spans,
                                        .rows_share = true})
                                .out;
        CHECK(std::memcmp(alone.data(), shared.data(), alone.size() * sizeof(f32)) == 0);
      }
    }
  }
}

TEST_CASE("slots taken in parts, as they come from elsewhere, give the same bits") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      Problem p(c, random);
      const u32 n = p.n_rows();
      const Problem::Output whole = p.run(gpu, {0, n, n, p.spans(), false});
      for (const u32 part_spans : {kGpuMergeSpans, 2 * kGpuMergeSpans}) {
        if (part_spans >= p.spans() && part_spans > kGpuMergeSpans) continue;  // one part, again
        CAPTURE(part_spans);
        const Problem::Output parts = p.run(gpu, {0, n, n + 1, p.spans(), true, part_spans});
        CHECK(std::memcmp(whole.out.data(), parts.out.data(), whole.out.size() * sizeof(f32)) == 0);
        CHECK(std::equal(whole.q.begin(), whole.q.end(), parts.q.begin()));
      }
    }
  }
}

TEST_CASE(
    "KV heads that see less than others have the bits of a launch in which all see as little") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  constexpr u32 kLess = 4099;  // of a row's spans, and of its parts
  for (const test::Gpu& gpu : test::gpus()) {
    CAPTURE(gpu.table->name);
    for (const Case& c : kCases) {
      if (c.n_kv_heads < 2) continue;
      CAPTURE(c.name);
      Problem p(c, random);
      const u32 n = p.n_rows();
      Case less = c;
      for (u32& visible : less.visible) visible -= std::min(visible, kLess);
      const Problem seen = p.as(less);
      const auto all = p.run(gpu, {0, n, n, p.spans(), false}).out;
      const auto few = seen.run(gpu, {0, n, n, p.spans(), false}).out;
      for (const u32 part_spans : {0u, kGpuMergeSpans}) {
        const auto mixed = p.run(gpu, {0, n, n + 1, p.spans(), false, part_spans, kLess}).out;
        for (u32 row = 0; row < n; ++row) {
          const u64 at = row * p.stride(), d_head = u64{c.n_group_heads} * c.head_dim;
          CHECK(std::memcmp(&mixed[at], &all[at], d_head * sizeof(f32)) == 0);
          CHECK(std::memcmp(&mixed[at + d_head], &few[at + d_head], d_head * sizeof(f32)) == 0);
        }
      }
    }
  }
}

TEST_CASE("kv_append writes the bytes of the CPU's kv_store, into its slot alone") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u64 vector_bytes = kv_vector_bytes(c.type, c.head_dim);
      const u64 page_bytes = 2 * vector_bytes * c.page_tokens;
      // Three rows, the last unused: row 0 in table 1, row 1 in table 0, two groups each.
      const u32 positions[] = {c.page_tokens + 3, c.page_tokens - 1, 0};
      const u64 k_stride = u64{c.n_kv_heads} * c.head_dim + kGap;
      std::vector<f32> k_rows(3 * k_stride), v_rows(3 * k_stride);
      for (f32& x : k_rows) x = random.normal() * 10.0f;
      for (f32& x : v_rows) x = random.below(40) == 0 ? 0.0f : random.normal();
      if (c.n_kv_heads == 2) v_rows[1] = std::numeric_limits<f32>::infinity();
      // The first of two of the same magnitude counts, and a block of zeros has no sign.
      if (c.head_dim >= 64) v_rows[40] = -20.0f, v_rows[43] = 20.0f;
      std::fill_n(&v_rows[k_stride], std::min(c.head_dim, 32u), -0.0f);
      std::vector<std::vector<u8>> want(4, std::vector<u8>(page_bytes * c.n_kv_heads, 0xa5));
      const DeviceArray<u8> g0(gpu, want[0]), g1(gpu, want[1]), g2(gpu, want[2]), g3(gpu, want[3]);
      const DeviceArray<u8>* const arrays[] = {&g0, &g1, &g2, &g3};
      for (u32 n = 0; n < 2; ++n) {
        for (u32 h = 0; h < c.n_kv_heads; ++h) {
          u8* slot = want[(1 - n) * 2 + positions[n] / c.page_tokens].data() + h * page_bytes +
                     positions[n] % c.page_tokens * 2 * vector_bytes;
          kv_store_generic({c.type, &k_rows[n * k_stride + h * c.head_dim],
                            &v_rows[n * k_stride + h * c.head_dim], slot, c.head_dim});
        }
      }
      const DeviceArray<u8*> groups(gpu, {g0.data(), g2.data(), g1.data(), g3.data()});
      const DeviceArray<u32> tables(gpu, {1, 0, 0}), n_rows(gpu, {2});
      const DeviceArray<u32> at(gpu, {positions[0], positions[1], positions[2]});
      const DeviceArray<f32> k(gpu, k_rows), v(gpu, v_rows);
      gpu.table->kv_append({.pages = {.type = c.type,
                                      .page_tokens = c.page_tokens,
                                      .head_dim = c.head_dim,
                                      .n_kv_heads = c.n_kv_heads,
                                      .groups = groups.data(),
                                      .table_stride = 1,
                                      .group_stride = 2,
                                      .page_stride = page_bytes,
                                      .tables = tables.data()},
                            .k = k.data(),
                            .k_stride = k_stride,
                            .v = v.data(),
                            .v_stride = k_stride,
                            .slots = at.data(),
                            .n_rows = n_rows.data(),
                            .rows_max = 3},
                           gpu.stream);
      for (u32 g = 0; g < 4; ++g) CHECK(arrays[g]->host() == want[g]);
    }
  }
}

TEST_CASE("kv_read widens what the CPU widens, and kv_append gives its bytes back") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const test::Gpu& gpu : test::gpus()) {
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      const u64 vector_bytes = kv_vector_bytes(c.type, c.head_dim);
      const u64 page_bytes = 2 * vector_bytes * c.page_tokens;
      const u64 d = u64{c.n_kv_heads} * c.head_dim, stride = d + kGap;
      // Five slots from the last but two of a page on, of the second table; two groups each.
      const u32 first = c.page_tokens - 2, n = 5;
      std::vector<std::vector<u8>> pages(2, std::vector<u8>(page_bytes * c.n_kv_heads, 0xa5));
      std::vector<f32> want_k(n * stride, kCanary), want_v(n * stride, kCanary);
      for (u32 i = 0; i < n; ++i) {
        for (u32 h = 0; h < c.n_kv_heads; ++h) {
          std::vector<f32> k(c.head_dim), v(c.head_dim);
          for (f32& x : k) x = random.normal() * 10.0f;
          for (f32& x : v) x = random.below(40) == 0 ? 0.0f : random.normal();
          if (i == 1) std::fill_n(v.begin(), std::min(c.head_dim, 32u), 0.0f);
          u8* slot = pages[(first + i) / c.page_tokens].data() + h * page_bytes +
                     (first + i) % c.page_tokens * 2 * vector_bytes;
          kv_store_generic({c.type, k.data(), v.data(), slot, c.head_dim});
          const TensorType type = kv_tensor_type(c.type);
          dequantize_row(type, slot, c.head_dim, &want_k[i * stride + h * c.head_dim]);
          dequantize_row(type, slot + vector_bytes, c.head_dim,
                         &want_v[i * stride + h * c.head_dim]);
        }
      }
      const DeviceArray<u8> g0(gpu, pages[0]), g1(gpu, pages[1]);
      const DeviceArray<u8> c0(gpu, pages[0].size(), u8{0}), c1(gpu, pages[1].size(), u8{0});
      const DeviceArray<u8*> groups(gpu, {g0.data(), c0.data(), g1.data(), c1.data()});
      const DeviceArray<u32> tables(gpu, {0, 1, 1, 1, 1, 1}), n_rows(gpu, {n});
      const DeviceArray<u32> at(gpu, {first, first + 1, first + 2, first + 3, first + 4});
      const DeviceArray<f32> k(gpu, std::vector<f32>(n * stride, kCanary));
      const DeviceArray<f32> v(gpu, std::vector<f32>(n * stride, kCanary));
      GpuPages from{.type = c.type,
                    .page_tokens = c.page_tokens,
                    .head_dim = c.head_dim,
                    .n_kv_heads = c.n_kv_heads,
                    .groups = groups.data(),
                    .table_stride = 1,
                    .group_stride = 2,
                    .page_stride = page_bytes,
                    .tables = tables.data()};
      gpu.table->kv_read({.pages = from,
                          .first_slot = first,
                          .n_rows = n,
                          .k = nullptr,
                          .k_stride = 0,
                          .v = v.data(),
                          .v_stride = stride},
                         gpu.stream);
      CHECK(std::ranges::all_of(k.host(), [](f32 x) { return x == kCanary; }));
      gpu.table->kv_read({.pages = from,
                          .first_slot = first,
                          .n_rows = n,
                          .k = k.data(),
                          .k_stride = stride,
                          .v = v.data(),
                          .v_stride = stride},
                         gpu.stream);
      CHECK(k.host() == want_k);
      CHECK(v.host() == want_v);
      from.tables = tables.data() + 1;
      gpu.table->kv_append({.pages = from,
                            .k = k.data(),
                            .k_stride = stride,
                            .v = v.data(),
                            .v_stride = stride,
                            .slots = at.data(),
                            .n_rows = n_rows.data(),
                            .rows_max = n},
                           gpu.stream);
      for (u32 i = 0; i < n; ++i) {
        for (u32 h = 0; h < c.n_kv_heads; ++h) {
          const u64 begin = h * page_bytes + (first + i) % c.page_tokens * 2 * vector_bytes;
          const auto copy = (first + i < c.page_tokens ? c0 : c1).host();
          const auto& own = pages[(first + i) / c.page_tokens];
          CHECK(std::memcmp(copy.data() + begin, own.data() + begin, 2 * vector_bytes) == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::attn_test
