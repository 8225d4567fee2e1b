// Goal    top_k gives the k largest, lowest places first among equals, in ascending order, on every
//         ISA.
// Method  a full stable sort as the oracle; rows with many ties, one value only, both zeros,
//         infinities, negatives, values that differ in their last bit; n and k around the lanes;
//         unaligned starts; canaries around the output. Then rows with NaN: the same answer on all
//         ISAs, ascending and in range.
#include "kernels/topk/topk.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cpu_table.h"
#include "tests/support/seed.h"

namespace tarn::kernels::topk_test {
namespace {

constexpr f32 kInf = std::numeric_limits<f32>::infinity();
constexpr u32 kCanary = 0xdeadbeefu;
constexpr u32 kLengths[] = {0, 1, 7, 8, 9, 15, 16, 17, 31, 33, 64, 255, 1000, 40000};
constexpr u32 kCounts[] = {0, 1, 2, 7, 8, 16, 17, 100, 999, 2048};

struct Kind {
  const char* name;
  f32 (*value)(test::Random& random);
};
constexpr Kind kKinds[] = {
    {"normal", [](test::Random& random) { return random.normal(); }},
    {"softmax weights", [](test::Random& random) { return std::exp(random.normal() * 8.0f - 20); }},
    {"few values", [](test::Random& random) { return static_cast<f32>(random.below(5)) - 2.0f; }},
    {"one value", [](test::Random&) { return -3.0f; }},
    {"both zeros", [](test::Random& random) { return random.below(2) == 0 ? 0.0f : -0.0f; }},
    {"neighbours",
     [](test::Random& random) {
       return std::bit_cast<f32>(static_cast<u32>(0x3f800000u + random.below(64)));
     }},
    {"infinities and subnormals",
     [](test::Random& random) {
       constexpr f32 kValues[] = {kInf, -kInf, 1e-44f, -1e-44f, 0.0f, 3e38f, -3e38f};
       return kValues[random.below(7)];
     }},
};

std::vector<u32> oracle(const std::vector<f32>& values, u32 n, u32 k) {
  std::vector<u32> places(n);
  std::iota(places.begin(), places.end(), 0u);
  std::stable_sort(places.begin(), places.end(),
                   [&](u32 a, u32 b) { return values[a + 1] > values[b + 1]; });
  places.resize(std::min(n, k));
  std::sort(places.begin(), places.end());
  return places;
}

struct alignas(64) Scratch {
  std::byte bytes[kTopKScratchBytes];
};

std::vector<u32> chosen(const CpuTable& table, const std::vector<f32>& values, u32 n, u32 k) {
  static Scratch scratch;
  std::vector<u32> out(std::min(n, k) + 2, kCanary);
  const u32 n_out = table.top_k(
      {.values = values.data() + 1, .out = out.data() + 1, .scratch = &scratch, .n = n, .k = k});
  REQUIRE(n_out == std::min(n, k));
  REQUIRE(out.front() == kCanary);
  REQUIRE(out.back() == kCanary);
  return {out.begin() + 1, out.end() - 1};
}

TEST_CASE("top_k agrees with a full sort on every ISA") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const Kind& kind : kKinds) {
    CAPTURE(kind.name);
    for (const u32 n : kLengths) {
      std::vector<f32> values(n + 1);
      for (f32& value : values) value = kind.value(random);
      for (const u32 k : kCounts) {
        const std::vector<u32> want = oracle(values, n, k);
        for (const CpuTable& table : cpu_tables()) {
          if (!table.runs_here()) continue;
          CAPTURE(table.isa);
          CAPTURE(n);
          CAPTURE(k);
          REQUIRE(chosen(table, values, n, k) == want);
        }
      }
    }
  }
}

TEST_CASE("NaN among the values breaks nothing") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<f32> values(1001);
  for (f32& value : values) {
    value = random.normal();
    if (random.below(3) == 0) value = std::numeric_limits<f32>::quiet_NaN();
  }
  const std::vector<u32> want = chosen(cpu_tables().back(), values, 1000, 100);
  CHECK(std::is_sorted(want.begin(), want.end()));
  CHECK(std::adjacent_find(want.begin(), want.end()) == want.end());
  CHECK(want.back() < 1000);
  for (const CpuTable& table : cpu_tables()) {
    if (table.runs_here()) CHECK(chosen(table, values, 1000, 100) == want);
  }
}

}  // namespace
}  // namespace tarn::kernels::topk_test
