// Goal    T_max is METHODS 3.1's formula with its figures, clipped, never less for a longer prompt;
//         a box that shares its cores, and rows that a sample stands for, count as the header says.
// Method  PQCache's own fit of a layer of Llama-3.1-8B on a 4090; the rest against the formula by
//         hand.
#include "runtime/method/pq/iterations.h"

#include <doctest/doctest.h>

namespace tarn::method::iterations_test {
namespace {

// 4.75e-11 s^2 + 2.539e-6 s + 4.22e-4 seconds; clustering 0.002 + 1e-7 s T.
LayerCost paper() {
  LayerCost cost;
  cost.job_ns = 2'000'000;
  cost.update_ps = 100'000;
  cost.layer_ns = 422'000;
  cost.token_ps = 2'539'000;
  cost.squared_fs = 47'500;
  return cost;
}

TEST_CASE("the figures of METHODS 14.2") {
  struct Case {
    u32 n_rows, n_updates;
  };
  constexpr Case kCases[] = {{100, 3}, {2000, 18}, {8000, 27}, {32000, 40}, {100'000, 72}};
  for (const Case& c : kCases) {
    CAPTURE(c.n_rows);
    CHECK(iterations_max(paper(), c.n_rows, c.n_rows) == c.n_updates);
  }
  CHECK(iterations_max(paper(), 1u << 24, 1u << 24) == kIterationsMax);
  u32 before = 0;
  for (u32 s = 1; s < 1'000'000; s += 1 + s / 64) {
    const u32 n = iterations_max(paper(), s, s);
    REQUIRE(n >= before);
    before = n;
  }
}

TEST_CASE("a share of the prefill, and what coding every row takes off it") {
  LayerCost cost = paper();
  cost.share_percent = 50;  // (35.1 ms - 2) / 2 ms
  CHECK(iterations_max(cost, 20'000, 20'000) == 16);
  cost.row_ps = 500'000;  // 10 ms of it
  CHECK(iterations_max(cost, 20'000, 20'000) == 11);
  CHECK(iterations_max(cost, 20'000, 10'000) == 23);
  cost.row_ps = 2'000'000;  // more than there is
  CHECK(iterations_max(cost, 20'000, 20'000) == kIterationsMin);
}

TEST_CASE("a number of the configuration stands; without one the sample's rows count") {
  SelectConfig config;
  config.cost = paper();
  CHECK(iterations(config, 100'000) == config.iterations);
  config.iterations = 0;
  config.code_bits = 8;  // a sample of 32,768 rows
  CHECK(iterations(config, 32'000) == 40);
  config.code_bits = 6;  // of 8,192: (130.3 ms - 2) / 0.8192
  CHECK(iterations(config, 32'000) == 156);
}

}  // namespace
}  // namespace tarn::method::iterations_test
