// Goal    attention and the append to its pages are what kernels/attn/attn.h says, on every ISA.
// Method  an f64 softmax oracle over the K and V that the pages really hold, within the header's
//         bound; all tables bit-equal to the generic one; a row alone bit-equal to the row in a
//         batch. Pages lie apart at 2-byte alignment and are full of NaN before anything is stored,
//         so is the scratch: what a row may not see, and what was never written, would reach the
//         output.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/support/seed.h"
#include "tests/support/slow_build.h"

namespace tarn::kernels::attn_test {
namespace {

constexpr f32 kCanary = -12345.0f;
constexpr f64 kEpsilonF32 = std::numeric_limits<f32>::epsilon();
constexpr KvType kTypes[] = {KvType::f16, KvType::q8_0, KvType::q4_0};

struct Case {
  const char* name;
  KvType type;
  u32 head_dim, page_tokens, n_group_heads;
  std::vector<u32> visible;
  f32 sharpness = 1.0f;  // of the softmax: scales q
  f32 higher = 0.0f;     // added to every score
};

// K's first element where all scores are higher: with that of q it is what they have more.
constexpr f32 kHigherKey = 8.0f;

// clang-format off
const Case kCases[] = {
    // name                             type         dim  page heads visible
    {"one slot",                        KvType::f16,   8,  16,  1, {1}},
    {"nothing to see",                  KvType::f16,  16,  16,  2, {0}},
    {"one short of a page",             KvType::f16,  64,  64,  4, {63}},
    {"exactly a page",                  KvType::f16,  64,  64,  4, {64}},
    {"one over a page",                 KvType::f16,  64,  64,  4, {65}},
    {"a model's decode",                KvType::f16, 128,  64,  4, {1000}},
    {"no grouped heads",                KvType::f16, 128,  64,  1, {333}},
    {"seven heads in a group",          KvType::f16, 128,  64,  7, {200}},
    {"eleven heads, odd pages of 16",   KvType::f16,  96,  16, 11, {77}},
    {"the largest head",                KvType::f16, 256, 128,  2, {300}},
    {"a head of 10",                    KvType::f16,  10,  32,  3, {15, 16, 17, 31, 32, 33}},
    {"a head of 30",                    KvType::f16,  30,  32,  2, {47, 48, 49}},
    {"a head of 36",                    KvType::f16,  36,  64,  5, {1, 70}},
    {"a head of 72",                    KvType::f16,  72,  64,  1, {129, 130, 131, 132, 133}},
    {"a head of 50, ten heads",         KvType::f16,  50,  16, 10, {5, 40}},
    {"a head of 160",                   KvType::f16, 160,  64,  2, {100}},
    {"a prefill slice from nothing",    KvType::f16, 128,  64,  4,
     {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}},
    {"a slice across a page border",    KvType::f16,  64,  64,  2,
     {57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70, 71, 72}},
    {"a ragged slice in no order",      KvType::f16,  80,  32,  3,
     {300, 0, 1, 64, 63, 65, 0, 299, 32, 31, 33, 128}},
    {"a slice of one-head groups",      KvType::f16,  64,  64,  1,
     {190, 191, 192, 193, 194, 195, 196}},
    {"a sharp softmax",                 KvType::f16, 128,  64,  4, {500, 501}, 20.0f},
    {"a long one",                      KvType::f16,  64,  64,  2, {20000}},
    {"scores whose exp is infinite",    KvType::f16,  64,  64,  2, {0, 1, 299, 300}, 1.0f, 90.0f},
    {"a long one, each exp in range",   KvType::f16,   8,  64,  1, {20000}, 1.0f, 80.0f},
    {"q8_0: scores, exp is infinite",   KvType::q8_0, 64,  64,  2, {0, 1, 299, 300}, 1.0f, 90.0f},
    {"q8_0: one slot",                  KvType::q8_0, 32,  16,  1, {1}},
    {"q8_0: around a page",             KvType::q8_0, 64,  64,  4, {63, 64, 65}},
    {"q8_0: a model's decode",          KvType::q8_0, 128, 64,  4, {700}},
    {"q8_0: a head of 96, pages of 16", KvType::q8_0, 96,  16,  5, {50, 0, 33}},
    {"q8_0: the largest head",          KvType::q8_0, 256, 128, 8, {200, 201}},
    {"q8_0: a slice",                   KvType::q8_0, 160, 32,  3,
     {28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43}},
    {"q4_0: one slot",                  KvType::q4_0, 32,  16,  1, {1}},
    {"q4_0: around a page",             KvType::q4_0, 64,  64,  4, {63, 64, 65}},
    {"q4_0: a model's decode",          KvType::q4_0, 128, 64,  4, {700}},
    {"q4_0: a head of 96, pages of 16", KvType::q4_0, 96,  16,  5, {50, 0, 33}},
    {"q4_0: the largest head",          KvType::q4_0, 256, 128, 8, {200, 201}},
    {"q4_0: a slice",                   KvType::q4_0, 160, 32,  3,
     {28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43}},
};
// clang-format on

// Written from the format's definition, apart from the product's conversions.
f64 decode_f16(u16 half) {
  const i32 exponent = (half >> 10) & 31;
  const i32 mantissa = half & 1023;
  const f64 magnitude = exponent == 31  ? (mantissa == 0 ? std::numeric_limits<f64>::infinity()
                                                         : std::numeric_limits<f64>::quiet_NaN())
                        : exponent == 0 ? std::ldexp(mantissa, -24)
                                        : std::ldexp(1024 + mantissa, exponent - 25);
  return (half & 0x8000) != 0 ? -magnitude : magnitude;
}

u16 u16_at(const u8* bytes) {
  u16 value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

f64 decode(KvType type, const u8* vector, u32 i) {
  if (type == KvType::f16) return decode_f16(u16_at(vector + 2 * i));
  if (type == KvType::q8_0) {
    const u8* block = vector + i / 32 * 34;
    return decode_f16(u16_at(block)) * static_cast<i8>(block[2 + i % 32]);
  }
  const u8* block = vector + i / 32 * 18;
  const u8 pair = block[2 + i % 16];
  return decode_f16(u16_at(block)) * ((i % 32 < 16 ? pair % 16 : pair / 16) - 8);
}

// The pages of one sequence and KV head, apart from each other in one buffer.
class Pages {
 public:
  Pages(const Case& c, u32 n_slots)
      : type_(c.type),
        page_tokens_(c.page_tokens),
        slot_bytes_(2 * kv_vector_bytes(c.type, c.head_dim)) {
    const u64 n_pages = (n_slots + c.page_tokens - 1) / c.page_tokens;
    const u64 page_bytes = slot_bytes_ * c.page_tokens;
    bytes_.assign((page_bytes + 6) * n_pages + 2, 0xff);
    for (u64 i = 0; i < n_pages; ++i) pointers_.push_back(bytes_.data() + 2 + (page_bytes + 6) * i);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  u8* slot(u32 t) {
    return bytes_.data() + (pointers_[t / page_tokens_] - bytes_.data()) +
           t % page_tokens_ * slot_bytes_;
  }
  f64 k(u32 t, u32 i) { return decode(type_, slot(t), i); }
  f64 v(u32 t, u32 i) { return decode(type_, slot(t) + slot_bytes_ / 2, i); }
  const u8* const* pointers() const { return pointers_.data(); }

 private:
  KvType type_;
  u32 page_tokens_;
  u64 slot_bytes_;
  std::vector<u8> bytes_;
  std::vector<const u8*> pointers_;
};

constexpr u32 kOffset = 3;  // of q and out from an aligned start, and of the gap behind a row

class Problem {
 public:
  Problem(const Case& c, test::Random& random)
      : case_(c),
        n_rows_(static_cast<u32>(c.visible.size())),
        n_slots_(*std::max_element(c.visible.begin(), c.visible.end())),
        stride_(u64{c.n_group_heads} * c.head_dim + kOffset),
        scale_(1.0f / std::sqrt(static_cast<f32>(c.head_dim))),
        pages_(c, n_slots_ + 1),
        q_(stride_ * n_rows_ + kOffset) {
    for (f32& q : q_) q = random.normal() * c.sharpness;
    for (u64 at = 0; c.higher > 0 && at < u64{n_rows_} * c.n_group_heads; ++at) {
      const u64 row = at / c.n_group_heads, head = at % c.n_group_heads;
      q_[kOffset + row * stride_ + head * c.head_dim] = c.higher / (kHigherKey * scale_);
    }
    std::vector<f32> k(c.head_dim), v(c.head_dim);
    for (u32 t = 0; t < n_slots_; ++t) {
      for (f32& x : k) x = random.normal();
      if (c.higher > 0) k[0] = kHigherKey;
      for (f32& x : v) x = random.normal() + 0.5f;
      kv_store_generic({.type = c.type,
                        .k = k.data(),
                        .v = v.data(),
                        .slot = pages_.slot(t),
                        .head_dim = c.head_dim});
    }
  }

  // The output with its gaps, canaries in the gaps. Rows [begin, begin + n) as one call.
  std::vector<f32> run(const CpuTable& table, u32 begin, u32 n) const {
    std::vector<f32> out(q_.size() + 16, kCanary);
    call(table, begin, n, {}, out);
    return out;
  }
  std::vector<f32> run(const CpuTable& table) const { return run(table, 0, n_rows_); }

  // All rows, one page or some at a time, each part with a scratch of its own; a part may be the
  // last before it is known to be.
  std::vector<f32> run_in_parts(const CpuTable& table, test::Random& random) const {
    const u64 n_states = u64{n_rows_} * case_.n_group_heads;
    const u64 state_bytes = attn_state_bytes(case_.head_dim, static_cast<u32>(n_states));
    std::vector<f32> state(state_bytes / sizeof(f32) + 1, std::nanf(""));
    state.back() = kCanary;
    std::vector<f32> out(q_.size() + 16, kCanary);
    for (u32 begin = 0; begin == 0 || begin < n_slots_;) {
      const u32 n_pages = static_cast<u32>(1 + random.below(3));
      const u32 end = begin + n_pages * case_.page_tokens;
      const bool ends = end >= n_slots_ && random.below(2) == 0;
      call(table, 0, n_rows_, {begin, ends ? ~u32{0} : end, state.data()}, out);
      REQUIRE(state.back() == kCanary);
      begin = end;
    }
    return out;
  }

  u64 index(u32 n, u32 h, u32 i) const {
    return kOffset + n * stride_ + u64{h} * case_.head_dim + i;
  }

  void check_against_oracle(const std::vector<f32>& out) {
    std::vector<bool> written(out.size());
    for (u32 n = 0; n < n_rows_; ++n) {
      for (u32 h = 0; h < case_.n_group_heads; ++h) {
        check_head(out, n, h);
        for (u32 i = 0; i < case_.head_dim; ++i) written[index(n, h, i)] = true;
      }
    }
    for (u64 i = 0; i < out.size(); ++i) REQUIRE((written[i] || out[i] == kCanary));
  }

  // Replaces one element of a query.
  void set_query(u32 n, u32 h, u32 i, f32 value) { q_[index(n, h, i)] = value; }

  Pages& pages() { return pages_; }
  u32 n_rows() const { return n_rows_; }

 private:
  // The query as the scores take it: over q8_0 and q4_0 quantised per 32, as activations.h says.
  std::vector<f64> query(u32 n, u32 h) const {
    std::vector<f64> query(q_.begin() + static_cast<std::ptrdiff_t>(index(n, h, 0)),
                           q_.begin() + static_cast<std::ptrdiff_t>(index(n, h, case_.head_dim)));
    if (case_.type == KvType::f16) return query;
    for (u32 begin = 0; begin < case_.head_dim; begin += 32) {
      f32 largest = 0.0f;
      for (u32 i = 0; i < 32; ++i) {
        largest = std::max(largest, std::abs(static_cast<f32>(query[begin + i])));
      }
      const f64 d = f64{largest / 127.0f};
      const f32 inverse = largest >= 0x1p-120f ? 127.0f / largest : 0.0f;
      for (u32 i = 0; i < 32; ++i) {
        const f32 steps = static_cast<f32>(query[begin + i]) * inverse;
        query[begin + i] = d * std::nearbyint(f64{steps});
      }
    }
    return query;
  }

  void check_head(const std::vector<f32>& out, u32 n, u32 h) {
    const u32 visible = case_.visible[n];
    const u32 d = case_.head_dim;
    std::vector<f64> weights(visible), want(d, 0.0);
    f64 magnitude = 0.0, v_max = 0.0, sum = 0.0;
    f64 max = -std::numeric_limits<f64>::infinity();
    const std::vector<f64> q = query(n, h);
    for (u32 t = 0; t < visible; ++t) {
      f64 terms = 0.0;
      for (u32 i = 0; i < d; ++i) {
        const f64 term = q[i] * pages_.k(t, i) * f64{scale_};
        weights[t] += term;
        terms += std::abs(term);
      }
      magnitude = std::max(magnitude, terms);
      max = std::max(max, weights[t]);
    }
    for (u32 t = 0; t < visible; ++t) {
      weights[t] = std::exp(weights[t] - max);
      sum += weights[t];
      for (u32 i = 0; i < d; ++i) {
        const f64 v = pages_.v(t, i);
        want[i] += weights[t] * v;
        v_max = std::max(v_max, std::abs(v));
      }
    }
    const u32 n_tiles = (visible + case_.page_tokens - 1) / case_.page_tokens;
    // As the header promises.
    const f64 bound =
        kEpsilonF32 * v_max * ((d + 5) * magnitude + 6.0 * n_tiles + case_.page_tokens + 8);
    for (u32 i = 0; i < d; ++i) {
      const f64 expected = visible == 0 ? 0.0 : want[i] / sum;
      REQUIRE(std::abs(f64{out[index(n, h, i)]} - expected) <= bound);
    }
  }

  struct Part {
    u32 slot_begin = 0;
    u32 slot_end = ~u32{0};
    f32* state = nullptr;
  };
  void call(const CpuTable& table, u32 begin, u32 n, const Part& part,
            std::vector<f32>& out) const {
    const u64 scratch_bytes =
        attn_scratch_bytes(case_.page_tokens, case_.head_dim, case_.n_group_heads);
    std::vector<u8> memory(scratch_bytes + 128, 0xff);
    u8* scratch = memory.data();
    while (reinterpret_cast<std::uintptr_t>(scratch) % 64 != 0) ++scratch;
    std::memset(scratch + scratch_bytes, 0xa5, 64);
    table.attn({.type = case_.type,
                .pages = pages_.pointers() + part.slot_begin / case_.page_tokens,
                .page_tokens = case_.page_tokens,
                .head_dim = case_.head_dim,
                .q = q_.data() + kOffset + begin * stride_,
                .q_stride = stride_,
                .out = out.data() + kOffset + begin * stride_,
                .out_stride = stride_,
                .n_rows = n,
                .n_group_heads = case_.n_group_heads,
                .visible = case_.visible.data() + begin,
                .scale = scale_,
                .scratch = scratch,
                .slot_begin = part.slot_begin,
                .slot_end = part.slot_end,
                .state = part.state});
    for (u32 i = 0; i < 64; ++i) REQUIRE(scratch[scratch_bytes + i] == 0xa5);
  }

  const Case& case_;
  u32 n_rows_, n_slots_;
  u64 stride_;
  f32 scale_;
  Pages pages_;
  std::vector<f32> q_;
};

bool same_bits(const std::vector<f32>& a, const std::vector<f32>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(f32)) == 0;
}

TEST_CASE("attn agrees with the f64 oracle and with generic, bit for bit, on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    Problem problem(c, random);
    const std::vector<f32> generic = problem.run(cpu_tables().back());
    problem.check_against_oracle(generic);
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      CHECK(same_bits(problem.run(table), generic));
    }
  }
}

TEST_CASE("attn of random shapes is bit-equal on every ISA and within the bound") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 round = 0; round < (test::kSlowBuild ? 30u : 120u); ++round) {
    Case c{"random", kTypes[random.below(4) % 3], 0, 0, 0, {}};
    c.head_dim = static_cast<u32>(c.type != KvType::f16 ? 32 * (1 + random.below(8))
                                                        : 2 * (4 + random.below(125)));
    c.page_tokens = 16u << random.below(4);
    c.n_group_heads = static_cast<u32>(1 + random.below(9));
    c.visible.resize(1 + random.below(kAttnRowsMax));
    for (u32& visible : c.visible) visible = static_cast<u32>(random.below(200));
    c.sharpness = random.uniform(0.1f, 6.0f);
    CAPTURE(c.head_dim);
    CAPTURE(c.page_tokens);
    CAPTURE(c.n_group_heads);
    Problem problem(c, random);
    const std::vector<f32> generic = problem.run(cpu_tables().back());
    problem.check_against_oracle(generic);
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      CHECK(same_bits(problem.run(table), generic));
    }
  }
}

TEST_CASE("a row alone, and rows cut anywhere, give the bits of the batch") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    for (const Case& c : kCases) {
      if (c.visible.size() < 2) continue;
      CAPTURE(table.isa);
      CAPTURE(c.name);
      Problem problem(c, random);
      const std::vector<f32> batch = problem.run(table);
      for (u32 begin = 0; begin < problem.n_rows();) {
        const u32 left = problem.n_rows() - begin;
        const u32 n = begin == 0 ? 1 : static_cast<u32>(1 + random.below(left));
        const std::vector<f32> part = problem.run(table, begin, n);
        for (u32 row = begin; row < begin + n; ++row) {
          const u64 first = problem.index(row, 0, 0);
          CHECK(std::memcmp(&part[first], &batch[first],
                            u64{c.n_group_heads} * c.head_dim * sizeof(f32)) == 0);
        }
        begin += n;
      }
    }
  }
}

TEST_CASE("slots taken in parts, with the state carried, give the bits of one call") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    for (const Case& c : kCases) {
      CAPTURE(c.name);
      Problem problem(c, random);
      const std::vector<f32> whole = problem.run(table);
      CHECK(same_bits(problem.run_in_parts(table, random), whole));
    }
  }
}

TEST_CASE("what one row may not see changes nothing in it, even NaN; what it sees does") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const KvType type : kTypes) {
    const Case c{"leak", type, 64, 64, 4, {64, 65, 70, 71, 69}};
    constexpr u32 kBroken = 69;  // seen by rows 2 and 3 alone
    Problem problem(c, random);
    const u64 vector_bytes = kv_vector_bytes(type, c.head_dim);
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      for (const u64 part : {u64{0}, vector_bytes}) {  // K, then V
        const std::vector<f32> clean = problem.run(table);
        std::vector<u8> kept(problem.pages().slot(kBroken) + part,
                             problem.pages().slot(kBroken) + part + vector_bytes);
        std::memset(problem.pages().slot(kBroken) + part, 0xff, vector_bytes);
        const std::vector<f32> broken = problem.run(table);
        std::copy(kept.begin(), kept.end(), problem.pages().slot(kBroken) + part);
        for (u32 n = 0; n < problem.n_rows(); ++n) {
          for (u32 h = 0; h < c.n_group_heads; ++h) {
            for (u32 i = 0; i < c.head_dim; ++i) {
              const u64 at = problem.index(n, h, i);
              if (n == 2 || n == 3) {
                REQUIRE(std::isnan(broken[at]));
              } else {
                REQUIRE(broken[at] == clean[at]);
              }
            }
          }
        }
      }
    }
  }
}

TEST_CASE("a query of zeros, of the smallest and of no numbers; the largest integers in K") {
  constexpr f32 kInf = std::numeric_limits<f32>::infinity();
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const KvType type : kTypes) {
    const Case c{"queries", type, 64, 64, 2, {40, 70, 90}};
    Problem problem(c, random);
    for (u32 i = 0; i < 32; ++i) {
      problem.set_query(0, 0, i, 0.0f);
      problem.set_query(0, 1, i, i % 2 == 0 ? 1e-37f : -0x1p-121f);
      problem.set_query(1, 0, i, i % 2 == 0 ? 3.0f : -3.0f);
      if (type == KvType::q8_0) problem.pages().slot(5)[2 + i] = i % 2 == 0 ? 0x80 : 0x7f;
      if (type == KvType::q4_0) problem.pages().slot(5)[2 + i % 16] = 0xf0;
    }
    problem.check_against_oracle(problem.run(cpu_tables().back()));
    problem.set_query(2, 0, 40, std::nanf(""));
    problem.set_query(2, 1, 41, -kInf);
    const std::vector<f32> generic = problem.run(cpu_tables().back());
    for (u32 i = 0; i < c.head_dim; ++i) {
      CHECK(std::isnan(generic[problem.index(2, 0, i)]));
      CHECK(std::isnan(generic[problem.index(2, 1, i)]));
      CHECK(std::isfinite(generic[problem.index(1, 1, i)]));
    }
    for (const CpuTable& table : cpu_tables()) {
      if (!table.runs_here()) continue;
      CAPTURE(table.isa);
      const std::vector<f32> out = problem.run(table);
      for (u64 i = 0; i < out.size(); ++i) {
        REQUIRE((out[i] == generic[i] || (std::isnan(out[i]) && std::isnan(generic[i]))));
      }
    }
  }
}

TEST_CASE("kv_store rounds as the header says, with the same bits on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const KvType type : kTypes) {
    for (u32 head_dim = 8; head_dim <= 256; head_dim += 2) {
      if (type != KvType::f16 && head_dim % 32 != 0) continue;
      CAPTURE(head_dim);
      std::vector<f32> k(head_dim + 1), v(head_dim + 2);
      const f32 magnitude = std::ldexp(1.0f, static_cast<i32>(random.below(40)) - 30);
      for (f32& x : k) x = random.normal() * magnitude;
      for (f32& x : v) x = random.normal() * 100.0f;
      const u64 vector_bytes = kv_vector_bytes(type, head_dim);
      std::vector<u8> generic(2 * vector_bytes + 34, 0xa5);
      kv_store_generic({type, k.data() + 1, v.data() + 2, generic.data() + 2, head_dim});
      for (u32 i = 0; i < head_dim; ++i) {
        for (const u32 part : {0u, 1u}) {
          const f64 x = f64{part == 0 ? k[i + 1] : v[i + 2]};
          const u8* vector = generic.data() + 2 + part * vector_bytes;
          const f64 got = decode(type, vector, i);
          if (type == KvType::f16) {
            const i32 exponent = std::max(x == 0.0 ? -14 : std::ilogb(x), -14);
            REQUIRE(std::abs(got - x) <= std::ldexp(0.5, exponent - 10));
          } else if (type == KvType::q8_0) {
            // Half a step, the rounding of d to f16 (127 * d * 2^-11, or half its smallest unit).
            const f64 d = decode_f16(u16_at(vector + i / 32 * 34));
            REQUIRE(std::abs(got - x) <= d * (0.5 + 127 * 0x1p-11) + 127 * 0x1p-25 + d * 1e-5);
          } else {
            // The same of 8 steps; a whole one at the end that has 7.
            const f64 signed_d = decode_f16(u16_at(vector + i / 32 * 18));
            const f64 d = std::abs(signed_d);
            const f64 step = got == 7 * signed_d ? 1.0 : 0.5;
            REQUIRE(std::abs(got - x) <= d * (step + 8 * 0x1p-11) + 8 * 0x1p-25 + d * 1e-5);
          }
        }
      }
      for (const CpuTable& table : cpu_tables()) {
        if (!table.runs_here()) continue;
        CAPTURE(table.isa);
        std::vector<u8> slot(generic.size(), 0xa5);
        table.kv_store({type, k.data() + 1, v.data() + 2, slot.data() + 2, head_dim});
        CHECK(slot == generic);
      }
    }
  }
}

TEST_CASE("kv_store rounds to the nearest even, and keeps what is not finite visible") {
  constexpr f32 kInf = std::numeric_limits<f32>::infinity();
  constexpr f32 kNan = std::numeric_limits<f32>::quiet_NaN();
  struct Border {
    f32 x;
    u16 half;
  };
  constexpr Border kBorders[] = {
      {0.0f, 0x0000},
      {-0.0f, 0x8000},
      {1.0f, 0x3c00},
      {1.0f + 0x1p-11f, 0x3c00},
      {1.0f + 0x3p-11f, 0x3c02},
      {65504.0f, 0x7bff},
      {65519.0f, 0x7bff},
      {65520.0f, 0x7c00},
      {-1e30f, 0xfc00},
      {0x1p-24f, 0x0001},
      {0x1p-25f, 0x0000},
      {0x3p-25f, 0x0002},
      {0x1p-14f, 0x0400},
      {kInf, 0x7c00},
  };
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    CAPTURE(table.isa);
    for (const Border& border : kBorders) {
      CAPTURE(border.x);
      const std::vector<f32> x(18, border.x);
      u8 slot[72];
      table.kv_store({KvType::f16, x.data(), x.data(), slot, 18});
      for (u32 i = 0; i < 36; ++i) REQUIRE(u16_at(slot + 2 * i) == border.half);
    }
    for (const f32 odd : {kNan, -kNan, kInf, -kInf, 1e-40f, 3e38f, 0.0f}) {
      CAPTURE(odd);
      for (u32 place = 0; place < 32; ++place) {
        std::vector<f32> x(32, odd == 0.0f || odd == 1e-40f ? 0.0f : 1.0f);
        x[place] = odd;
        for (const KvType type : {KvType::q8_0, KvType::q4_0}) {
          u8 slot[68] = {}, generic[68] = {};
          table.kv_store({type, x.data(), x.data(), slot, 32});
          kv_store_generic({type, x.data(), x.data(), generic, 32});
          CHECK(std::memcmp(slot, generic, sizeof slot) == 0);
          const bool finite = std::abs(odd) < 1.0f;
          for (u32 i = 0; i < 32; ++i) {
            if (finite) {
              REQUIRE(decode(type, slot, i) == 0.0);
            } else {
              REQUIRE(std::isnan(decode(type, slot, i)));
            }
          }
        }
      }
    }
  }
}

TEST_CASE("q4_0 is stored as llama.cpp stores it: the bytes of a block, by hand") {
  // d = -(-4)/8 = 0.5; x/d = -8, 6, 8 (7 at most), 0, and 0.25/0.5 = 0.5, to the even 0.
  std::vector<f32> x(32, 0.0f);
  x[0] = -4.0f, x[1] = 3.0f, x[15] = 0.25f, x[16] = 4.0f, x[31] = -0.75f;
  u8 expected[18] = {0x00, 0x38};
  std::memset(expected + 2, 0x88, 16);
  expected[2] = 0xf0, expected[3] = 0x8e, expected[17] = 0x68;  // -1.5 to the even -2
  for (const CpuTable& table : cpu_tables()) {
    if (!table.runs_here()) continue;
    u8 slot[36];
    table.kv_store({KvType::q4_0, x.data(), x.data(), slot, 32});
    CHECK(std::memcmp(slot, expected, 18) == 0);
    CHECK(std::memcmp(slot + 18, expected, 18) == 0);
  }
}

}  // namespace
}  // namespace tarn::kernels::attn_test
