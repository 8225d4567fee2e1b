// Keys and queries with known scores. A given share of a query's best tokens repeats from step to
// step, and weights fall with their rank by a power law. So hit rates can be measured at a chosen
// overlap, and not at a random model's.
//
//   where    in the dims that RoPE hardly rotates within the context (models search by content
//            there); queries are 0 in all others
//   keys     sqrt(w) * g, w exponential, g normal: Laplace along any direction, so the r-th best of
//            N scores is log(N / 2r) / sqrt(2) of the query's length, and the r-th weight falls as
//            r^-tail. Runs of tokens share a part of g, like neighbours in a text
//   queries  a direction for each KV head, the same for its q heads, which turns by a fixed angle
//            per step. A simulation finds the angle at which the share `overlap` of the k best
//            stays
#pragma once

#include <vector>

#include "runtime/engine/engine.h"

namespace tarn::bench {

struct PlantingArgs {
  f64 overlap = 0.6;
  f64 tail = 1.0;
  f64 chosen_share = 0.0625;  // k as a share of the context
};

class Planting {
 public:
  static constexpr u32 kRunTokens = 64;

  Planting(const PlantingArgs& args, u64 seed) : args_(args), seed_(seed) {}
  // Throws tools::Failure if RoPE rotates every dim.
  void begin(const model::ModelSpec& spec, const f64* inv_freq, u32 context_tokens);
  // Overwrites the keys of one slot before RoPE, [n_kv_heads, head_dim].
  void plant_keys(u32 cache_layer, u32 slot, f32* k) const;
  // Overwrites the queries of each row of a step, after one more turn of the direction.
  void plant_queries(const step::KvRows& rows);
  f64 angle() const { return angle_; }

 private:
  void find_angle();
  void turn(f32* direction);

  PlantingArgs args_;
  u64 seed_;
  u64 n_turns_ = 0;
  f64 angle_ = 0;
  u32 n_heads_ = 0, n_kv_heads_ = 0, head_dim_ = 0;
  std::vector<u32> dims_;        // of a head
  std::vector<f32> directions_;  // [n_cache_layers, n_kv_heads, dims]
};

}  // namespace tarn::bench
