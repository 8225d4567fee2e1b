// The acts of measurements and tests on an engine beside its public calls. Part of tarn_lab, which
// tarn-bench, `tarn eval`, `tarn verify` and tests link, and libtarn.a does not.
//
//   thread   the engine's
#pragma once

#include <span>

#include "runtime/engine/engine.h"

namespace tarn::lab {

using engine::SessionIdx;

struct RecallArgs {
  SessionIdx session = 0;
  u32 cache_layer = 0, kv_head = 0;
  const f32* q = nullptr;  // queries of one KV head's q heads, after RoPE
};

// The work of a clustering of so many rows with these settings.
struct ClusterWork {
  u32 n_sampled = 0;  // rows that are clustered
  u32 n_updates = 0;  // of their centroids, at most
};
ClusterWork cluster_work(const SelectConfig& config, u32 n_rows);

// A view of an engine; costs nothing to make.
class Probe {
 public:
  explicit Probe(engine::Engine& engine) : engine_(engine) {}

  // Parts of an engine, to look at.
  static const kv::GroupPool& pool(const engine::Engine& engine) {
    return engine.kv_.cache().pool();
  }
  static const kv::KvCache& kv(const engine::Engine& engine) { return engine.kv_.cache(); }
  static const kv::Tiers& tiers(const engine::Engine& engine) { return engine.kv_.cache().tiers(); }
  static const reuse::Archive& archive(const engine::Engine& engine) {
    return engine.kv_.archive();
  }
  static std::span<const reuse::Blend> blends(const engine::Engine& engine) {
    return engine.kv_.blends().all();
  }
  static const method::Selector& selector(const engine::Engine& engine) {
    return engine.kv_.selector();
  }

  // Returns what `tarn verify --reuse` writes down for this share; the engine has the weights' hash
  // where its configuration has any mark.
  VerifyMark blend_mark(u32 recompute_percent) const;

  // From now on tokens of chunks are chosen by these scores; nullptr: by their deviations.
  void score_rows_by(reuse::ScoreRows score);

  // Calls `on_logits` with the logits of every row that the session computes from now on; nullptr
  // ends it.
  void watch_logits(SessionIdx idx, engine::LogitsFn on_logits, void* context);
  // Engine::generate(), whose first tokens are `forced`, whatever the logits say: a text read by
  // decode steps. `forced` is borrowed until the end.
  Result<void> generate(SessionIdx idx, const engine::GenerateParams& params,
                        std::span<const u32> forced);

  // Engine::feed(), without a forward pass: `rows` writes K before RoPE and V of all tokens but the
  // last. Workers call it, with the rows of a layer in any order.
  Result<void> fill_kv(SessionIdx idx, std::span<const u32> ids, step::KvWatch rows);
  // Shows K and V that steps compute; an empty watch ends it. On a CPU it may change them. On a GPU
  // it sees copies, and no step is a graph meanwhile.
  void watch_kv(step::KvWatch watch);
  // Returns what turns queries and keys: [n_rot / 2], the file's factors included.
  const f64* rope_inv_freq() const;

  // With KV in a CPU's memory: the share of method oracle's k tokens of the middle that method pq
  // chooses too, with the configuration's budgets. NaN where the session is too short for an index.
  f64 recall(const RecallArgs& args) const;

 private:
  Result<void> fill_rows(engine::Session& session, u32 n, step::KvWatch source);
  Result<void> fill_arrived();

  engine::Engine& engine_;
};

}  // namespace tarn::lab
