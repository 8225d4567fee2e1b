// Goal    what follows from costs alone: the loading controller's cases of METHODS 14.3, from which
//         length selection pays, and the look-ahead over sessions that wait.
// Method  figures by hand.
#include "runtime/control/costs.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "runtime/control/control.h"
#include "runtime/control/look_ahead.h"

namespace tarn::control::costs_test {
namespace {

TEST_CASE("a prefill of 20 ms a layer: the share that is recomputed while KV is loaded") {
  struct Case {
    f64 load_s, least, share;
  };
  constexpr Case kCases[] = {{0.016, 0.15, 0.8}, {0.001, 0.15, 0.15}, {0.040, 0.15, 1},
                             {0, 0.15, 0.15},    {0.003, 0.15, 0.15}, {0.016, 1, 1}};
  for (const Case& c : kCases) {
    CAPTURE(c.load_s);
    CHECK(recompute_share(c.least, c.load_s, 0.020) == doctest::Approx(c.share));
  }
  CHECK(recompute_share(0.15, 1, 0) == doctest::Approx(0.15));  // nothing is known
}

TEST_CASE("chunks that lie encoded count with what is read and what decoding takes") {
  const Costs costs{.n_layers = 1, .token_s = 0.020 / 512, .byte_s = 0.016 / 1e6};
  CHECK(costs.prefill_s(0, 512) == doctest::Approx(0.020));
  CHECK(costs.load_s(1, 1e6) == doctest::Approx(0.016));
  const f64 encoded_s = costs.load_s(1, 1e6 / 4, /*decode_s=*/0.001);
  CHECK(encoded_s == doctest::Approx(0.005));
  CHECK(recompute_share(0.15, encoded_s, costs.prefill_s(0, 512)) == doctest::Approx(0.25));
}

TEST_CASE("the cheapest device that loads within 15 % of the prefill") {
  const std::array<StorageDevice, 3> devices = {{{0.001, 9}, {0.0025, 4}, {0.009, 1}}};
  CHECK(choose_device(devices, 0.15 * 0.020) == 1);
  CHECK(choose_device(devices, 0.0009) == 0);  // none: the fastest
  CHECK(choose_device(devices, 1) == 2);
}

TEST_CASE("a prefill's time is that of its parts, in every layer") {
  const Costs costs{
      .n_layers = 32, .rows_max = 512, .layer_s = 1e-3, .token_s = 2e-6, .squared_s = 5e-11};
  for (const f64 cut : {1.0, 100.0, 512.0, 4095.0}) {
    CAPTURE(cut);
    const f64 one_more_s = cut == 512 ? 0 : 32 * 1e-3;  // step
    CHECK(costs.prefill_s(0, cut) + costs.prefill_s(cut, 4096) ==
          doctest::Approx(costs.prefill_s(0, 4096) + one_more_s).epsilon(1e-12));
  }
  CHECK(costs.prefill_s(0, 4096) ==
        doctest::Approx(32 * (8 * 1e-3 + 4096 * 2e-6 + 5e-11 * 4096 * 4096)));
  CHECK(costs.prefill_s(7, 7) == 0);
}

TEST_CASE("units of the profile") {
  BoxConfig box;
  box.layer = {.layer_ns = 422'000, .token_ps = 2'539'000, .squared_fs = 47'500};
  box.disk_request_ns = 1000;
  box.disk_byte_fs = 333'000;  // 3 GB/s
  const Costs costs = costs_of(box, 32, 8192);
  // Equation 2 of PQCache, a layer of Llama-3.1-8B on a 4090.
  CHECK(costs.prefill_s(0, 8000) / 32 ==
        doctest::Approx(4.22e-4 + 2.539e-6 * 8000 + 4.75e-11 * 8000 * 8000));
  CHECK(costs.load_s(100, 3e9) == doctest::Approx(100e-6 + 0.999));
  CHECK(costs.has_prefill());
  CHECK(costs.has_disk());
  CHECK_FALSE(costs_of({}, 32, 512).has_prefill());
  CHECK_FALSE(costs_of({}, 32, 512).has_disk());
}

TEST_CASE("a blended prompt: check layers of its chunks, their chosen rows and the rest in all") {
  const Costs costs{
      .n_layers = 32, .rows_max = 512, .layer_s = 1e-3, .token_s = 2e-6, .squared_s = 5e-11};
  struct Case {
    const char* name;
    BlendPrompt prompt;
    f64 n_check_rows, n_check_steps, n_rows, n_steps;
  };
  const Case cases[] = {
      {"six chunks and a question", {3104, 0, 6, 3072, 3072, 1, 0.15}, 3072, 6, 492.8, 6},
      {"the first one's KV is there", {3104, 512, 5, 2560, 3072, 1, 0.15}, 3072, 6, 416, 5},
      {"long ones", {4128, 0, 1, 4096, 4096, 2, 0.5}, 4096, 8, 2080, 5},
      {"no rows are chosen anew", {3104, 0, 6, 3072, 3072, 0, 0}, 0, 0, 32, 6},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.name));
    const f64 row_s = 2e-6 + 5e-11 * c.prompt.n_tokens;
    const f64 check_s =
        32.0 / 31 * c.prompt.n_check_layers * (1e-3 * c.n_check_steps + c.n_check_rows * row_s);
    const f64 rows_s = 32 * (1e-3 * c.n_steps + c.n_rows * row_s);
    CHECK(blended_rows_s(costs, c.prompt) == doctest::Approx(check_s + rows_s));
  }
}

TEST_CASE("selection pays from where its step takes less") {
  struct Case {
    const char* name;
    u64 decode_ns, decode_ps, select_ns, select_ps;
    u32 from;
  };
  constexpr Case kCases[] = {
      {"not measured", 0, 0, 0, 0, 0},
      {"a CPU: 20 ms more, 5 us less a token", 160'000'000, 5'000'000, 180'000'000, 1'000'000,
       5000},
      {"an H100: 2 ms more, 0.05 us less", 2'650'000, 58'000, 5'300'000, 2'000, 47'322},
      {"never: it grows faster", 100, 10, 200, 10, kNever},
      {"always", 200, 10, 100, 5, 1},
      {"beyond every length", 1, 1, 1'000'000'000'000, 0, kNever},
  };
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    BoxConfig box;
    box.decode_step_ns = c.decode_ns;
    box.decode_token_ps = c.decode_ps;
    box.select_step_ns = c.select_ns;
    box.select_token_ps = c.select_ps;
    CHECK(selection_pays_from(box) == c.from);
    CHECK(resolved({}, box).context_from == c.from);
    CHECK(resolved({}, box).context_min == 0);
  }
}

TEST_CASE("sessions of 2 GiB: 5 within 10 GiB of memory, 50 with 90 GiB of disk") {
  struct Case {
    u64 capacity_gib;
    u32 n_sessions;
  };
  constexpr Case kCases[] = {{10, 5}, {10 + 90, 50}, {11, 5}, {1, 0}, {0, 0}};
  for (const Case& c : kCases) {
    CAPTURE(c.capacity_gib);
    LookAhead ahead(c.capacity_gib << 30);
    u32 n = 0;
    while (ahead.takes(u64{2} << 30)) ++n;
    CHECK(n == c.n_sessions);
  }
}

TEST_CASE("behind a session that has no room no other one has any") {
  LookAhead ahead(10);
  CHECK(ahead.takes(8));
  CHECK_FALSE(ahead.takes(3));
  CHECK_FALSE(ahead.takes(1));
}

}  // namespace
}  // namespace tarn::control::costs_test
