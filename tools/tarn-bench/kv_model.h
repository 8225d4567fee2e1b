// K and V for a depth without a prefill: rows recorded from a short real prefill, continued.
//
//   recorded    the recorded rows repeated, each rotated to its new position
//   synthetic   mean + sum of w[i] * (recorded row at cursor i - mean), sum of w[i]^2 = 1: every
//               head has the recorded covariance, yet no two rows are equal. Weights are drawn for
//               a run of kRunTokens, and its cursors advance with it: within a run, neighbours are
//               as similar as in the recording
// The first kSinkTokens slots are the recorded ones, because models treat them specially. A row
// depends only on seed and slot.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/engine/engine.h"
#include "tools/tarn-bench/planting.h"

namespace tarn::bench {

enum class KvModelKind : u8 { recorded, synthetic };
inline constexpr const char* kKvModelNames[] = {"recorded", "synthetic"};
KvModelKind kv_model_kind(const std::string& name);

class KvModel {
 public:
  static constexpr u32 kRunTokens = 64;
  static constexpr u32 kSinkTokens = 4;
  static constexpr u32 kCursors = 4;

  KvModel(KvModelKind kind, u64 seed) : kind_(kind), seed_(seed) {}
  // Prefills n_tokens random tokens in a session of its own. Throws tools::Failure.
  void record(engine::Engine& engine, u32 n_tokens);
  // Also plants the tokens that the steps' queries will find, in synthetic rows. Throws
  // tools::Failure.
  void plant(const PlantingArgs& args, engine::Engine& engine);
  // Parts of record(): room for rows, recording, and their means.
  void begin(u32 n_layers, u32 n_tokens, u32 d);
  step::KvWatch recorder() { return {&KvModel::take, this}; }
  void end();

  // The source for lab::Probe::fill_kv(); this object must outlive it.
  step::KvWatch source() { return {&KvModel::write, this}; }
  // Watches decode steps over such KV: changes their queries if tokens are planted.
  step::KvWatch planter();
  // "filled, synthetic"; "filled, synthetic, overlap 0.6, tail 1"
  std::string name() const;

 private:
  static void take(void* context, const step::KvRows& rows);
  static void write(void* context, const step::KvRows& rows);
  void write_row(u32 cache_layer, u32 slot, f32* k, f32* v) const;

  KvModelKind kind_;
  u64 seed_;
  u32 n_layers_ = 0, n_tokens_ = 0, d_ = 0;
  PlantingArgs planted_{};
  std::optional<Planting> planting_;
  std::vector<f32> rows_;   // [n_layers, n_tokens, 2, d], 2 = {K, V}
  std::vector<f32> means_;  // [n_layers, 2, d]
};

}  // namespace tarn::bench
