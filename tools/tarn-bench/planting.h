// tools/tarn-bench/planting.h
//
// Keys and queries whose scores are known: what a query wants most repeats from step to step to a
// given share, and the weights fall with their rank by a power law. So hit rates can be measured at
// an overlap that is said, and not at whichever a random model happens to have.
//
//   where    in the dims that RoPE hardly turns within the context (as models keep what they find
//            by content there); queries are 0 in all others
//   keys     sqrt(w) * g, w exponential, g normal: along any direction Laplace, so the r-th best of
//            N scores is log(N / 2r) / sqrt(2) of the query's length: the r-th weight falls as
//            r^-tail. Runs of tokens share a part of g, as neighbours in a text do
//   queries  a direction for each KV head, the same for its q heads, that turns by one angle a
//            step: the one at which, in a simulation, the share `overlap` of the k best stays
#pragma once

#include <vector>

#include "runtime/engine/engine.h"

namespace tarn::bench {

struct PlantingArgs {
  f64 overlap = 0.6;
  f64 tail = 1.0;
  f64 chosen_share = 0.0625;  // k of the context
};

class Planting {
 public:
  static constexpr u32 kRunTokens = 64;

  Planting(const PlantingArgs& args, u64 seed) : args_(args), seed_(seed) {}
  // Throws tools::Failure where RoPE turns every dim.
  void begin(const model::ModelSpec& spec, const f64* inv_freq, u32 context_tokens);
  // Over the keys of one slot before RoPE, [n_kv_heads, head_dim].
  void plant_keys(u32 cache_layer, u32 slot, f32* k) const;
  // Over the queries of a step, of each of its rows: the direction has turned once more.
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
