// tools/tarn-bench/kv_model.h
//
// K and V for a depth that nobody prefills: rows recorded from a short real prefill, continued.
//
//   recorded    the recorded rows over and over, each turned to the position where it comes to lie
//   synthetic   mean + sum of w[i] * (recorded row at cursor i - mean), sum of w[i]^2 = 1: the
//               covariance of every head is the recorded one's, yet no two rows are alike. Weights
//               are drawn for a run of kRunTokens, and its cursors go forward with it: inside of a
//               run neighbours are as alike as they were in the recording
// The first kSinkTokens slots are the recorded ones: models keep something of its own there. A
// row follows from seed and slot alone.
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
  // Prefills n_tokens random ones in a session of their own. Throws tools::Failure.
  void record(engine::Engine& engine, u32 n_tokens);
  // Also plants what the queries of steps will find, in synthetic rows. Throws tools::Failure.
  void plant(const PlantingArgs& args, engine::Engine& engine);
  // Its parts: room for rows, what writes them down, and their means.
  void begin(u32 n_layers, u32 n_tokens, u32 d);
  step::KvWatch recorder() { return {&KvModel::take, this}; }
  void end();

  // What lab::Probe::fill_kv() asks for; this outlives it.
  step::KvWatch source() { return {&KvModel::write, this}; }
  // What watches decode steps behind such KV: changes their queries where something is planted.
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
