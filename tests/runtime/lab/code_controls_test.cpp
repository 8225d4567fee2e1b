// Goal    codes of keys before RoPE rank a document at position P of a session as the header says:
//         (R_(P+q) query) . key is what a query turned to q gets from the key that the control
//         makes of its cached neighbour in slot k, which was turned to k.
// Method  random queries and keys, turned by std::cos and std::sin in f64, both kinds of pairs, a
//         head of which only a part turns; the control's f32 against it, by the vectors' lengths.
#include "runtime/lab/code_controls.h"

#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kernels/rope/rope.h"
#include "tests/support/seed.h"

namespace tarn::lab {
namespace {

constexpr u32 kHeadDim = 64;

std::vector<f64> turned(const std::vector<f64>& x, u64 position, const model::ModelSpec& spec,
                        const std::vector<f64>& inv_freq) {
  std::vector<f64> out = x;
  const u32 n_pairs = spec.n_rot / 2;
  for (u32 i = 0; i < n_pairs; ++i) {
    const u32 a = spec.rope_halves ? i : 2 * i;
    const u32 b = spec.rope_halves ? i + n_pairs : 2 * i + 1;
    const f64 angle = static_cast<f64>(position) * inv_freq[i];
    out[a] = x[a] * std::cos(angle) - x[b] * std::sin(angle);
    out[b] = x[a] * std::sin(angle) + x[b] * std::cos(angle);
  }
  return out;
}

TEST_CASE(
    "keys before RoPE, of a document that begins at P, give a query the scores that they "
    "would give it at P") {
  struct Case {
    u32 first_position;
    u32 n_rot;
    bool halves;
  };
  const Case kCases[] = {
      {0, 64, false},      {0, 64, true},      {1, 64, false},      {4096, 32, true},
      {126976, 64, false}, {126976, 64, true}, {126976, 48, false}, {1 << 30, 64, false},
  };
  const u64 seed = test::seed_from_environment();
  std::mt19937_64 random(seed);
  std::normal_distribution<f64> normal;
  const u32 n_slots = 512;
  for (const Case& c : kCases) {
    CAPTURE(c.first_position);
    CAPTURE(c.n_rot);
    CAPTURE(c.halves);
    model::ModelSpec spec{};
    spec.head_dim = kHeadDim;
    spec.n_rot = c.n_rot;
    spec.rope_halves = c.halves;
    std::vector<f64> inv_freq(c.n_rot / 2);
    kernels::rope_frequencies(500'000.0, 1.0, c.n_rot, nullptr, inv_freq.data());
    const auto control = code_control("keys-before-rope", c.first_position);
    REQUIRE(control != nullptr);
    control->set_model(spec, inv_freq.data(), n_slots);
    for (const u32 slot : {0u, 1u, 300u, n_slots - 1}) {
      std::vector<f64> query(kHeadDim);
      std::vector<f64> key(kHeadDim);
      for (f64& x : query) x = normal(random);
      for (f64& x : key) x = normal(random);
      const u64 q = 400;
      const std::vector<f64> cached = turned(key, slot, spec, inv_freq);
      std::vector<f32> coded(cached.begin(), cached.end());
      control->change(slot, coded.data());
      const std::vector<f64> late = turned(query, c.first_position + q, spec, inv_freq);
      const std::vector<f64> early = turned(query, q, spec, inv_freq);
      f64 expected = 0.0;
      f64 got = 0.0;
      f64 lengths = 0.0;
      for (u32 d = 0; d < kHeadDim; ++d) {
        expected += late[d] * key[d];
        got += early[d] * static_cast<f64>(coded[d]);
        lengths += std::abs(query[d]) * std::abs(key[d]);
      }
      CAPTURE(slot);
      CAPTURE(seed);
      CHECK(std::abs(got - expected) < 1e-5 * lengths);
    }
  }
}

TEST_CASE("a control by another name is none") {
  CHECK(code_control("keys-after-rope") == nullptr);
}

}  // namespace
}  // namespace tarn::lab
