// runtime/engine/backend.h
//
// The ops of a forward pass on a queue. The forward pass (forward.cpp) is written once over this; a
// CPU backend carries an op out when it is called, a GPU backend enqueues it. Addresses are in the
// backend's own space: host code may not read through them unless the backend is the CPU's.
//
//   rows     [n, stride] f32, stride in elements
//   thread   the engine's
#pragma once

#include <span>

#include "kernels/rope/rope.h"
#include "platform/base/types.h"
#include "runtime/kv/sequence.h"
#include "runtime/model/weights.h"

namespace tarn::engine {

struct Rows {
  f32* data = nullptr;
  u64 stride = 0;
};

// Rows of one sequence that stand next to each other in a step; ascending positions.
struct RowRun {
  u32 row_begin = 0;
  u32 n_rows = 0;
  kv::Sequence* sequence = nullptr;
  u32 owner = 0;         // the engine's own mark: the session's index
  bool selects = false;  // its one row reads chosen slots only
};

// What the kernels of a step read: lengths, positions and places. Fixed arrays that the engine
// fills before the step; nothing variable is baked into an op (DESIGN section 5).
struct StepState {
  u32 n_rows = 0;
  u32* tokens = nullptr;     // [rows_max]
  u32* positions = nullptr;  // [rows_max]; also the slot the row writes
  u32* visible = nullptr;    // [rows_max]; the row attends to slots [0, visible)
  std::span<const RowRun> runs{};
};

struct Projection {
  const model::WeightMatrix* weight = nullptr;
  const f32* bias = nullptr;
  Rows out{};
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* isa() const = 0;

  // out[n] = row tokens[n] of the table
  virtual void embed(const model::WeightMatrix& table, const u32* tokens, u32 n, Rows out) = 0;
  virtual void rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) = 0;
  // The same for each of n_heads heads of head_dim, in place.
  virtual void rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) = 0;
  // Several products of the same rows: out_j = x * w_j^T (+ bias_j). Fused: x is prepared once.
  virtual void project(Rows x, u32 n, std::span<const Projection> projections) = 0;
  // cos and sin of the step's positions, kept by the backend until the next call.
  virtual void rope_prepare(const StepState& step) = 0;
  virtual void rope(Rows x, u32 n, u32 n_heads) = 0;
  // K and V of every row go to slot positions[row] of its sequence.
  virtual void kv_append(const StepState& step, u32 cache_layer, Rows k, Rows v) = 0;
  virtual void attend(const StepState& step, u32 cache_layer, Rows q, Rows out) = 0;
  virtual void swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) = 0;
  virtual void add(Rows x, Rows y, u32 d, u32 n) = 0;
  // out[i] = x[rows[i]]; out may be x when rows[i] >= i ascending.
  virtual void gather(Rows x, std::span<const u32> rows, u32 d, Rows out) = 0;

  // Bytes that ops since the last call read from weights and from KV.
  struct Traffic {
    u64 weight_bytes = 0;
    u64 kv_bytes = 0;
  };
  virtual Traffic take_traffic() = 0;
};

}  // namespace tarn::engine
