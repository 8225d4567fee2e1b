// runtime/engine/backend.h
//
// The ops of a forward pass on a queue. The forward pass (forward.cpp) is written once over this; a
// CPU backend carries an op out when it is called, a GPU backend enqueues it. Addresses of rows and
// weights are in the backend's own space: host code may not read through them. The step's state is
// the host's, and a backend takes what its kernels need of it in begin_step().
//
//   rows     [n, stride] f32, stride in elements
//   thread   the engine's
//   errors   ops answer nothing; finish() tells whether they were carried out
#pragma once

#include <span>

#include "kernels/rope/rope.h"
#include "kernels/sample/sample.h"
#include "platform/base/result.h"
#include "platform/base/types.h"
#include "runtime/kv/sequence.h"
#include "runtime/model/weights.h"

namespace tarn::engine {

struct Rows {
  f32* data = nullptr;
  u64 stride = 0;
};
inline Rows from_row(Rows rows, u32 row) { return {rows.data + row * rows.stride, rows.stride}; }

// Rows of one sequence that stand next to each other in a step; ascending positions.
struct RowRun {
  u32 row_begin = 0;
  u32 n_rows = 0;
  kv::Sequence* sequence = nullptr;
  u32 owner = 0;         // the engine's own mark: the session's index
  bool selects = false;  // its one row reads chosen slots only
  // Then groups of which it reads single slots; of the others all, or nearly.
  u32 far_begin = 0, far_end = 0;
};

// K before RoPE and V of consecutive slots of one cache layer, [n, n_kv_heads * head_dim] each; of
// rows that a step computes, their queries before RoPE too.
struct KvRows {
  u32 owner = 0;  // of a step's rows, as in RowRun
  u32 cache_layer = 0;
  u32 first_slot = 0;
  u32 n = 0;
  Rows k{}, v{}, q{};
};
using KvRowsFn = void (*)(void* context, const KvRows& rows);
struct KvWatch {
  KvRowsFn rows = nullptr;
  void* context = nullptr;
};

// Says whether anybody still wants what a step computes. A prefill slice of an 8B takes seconds on
// two cores; a cancel must not wait for its end.
class StepWatch {
 public:
  // Asked often, by the engine's thread, which tells sessions their ends meanwhile.
  virtual bool is_wanted() = 0;

 protected:
  ~StepWatch() = default;
};

// What the kernels of a step read: lengths, positions and places. Fixed arrays in host memory that
// the engine fills before the step and leaves alone until its end; nothing variable is baked into
// an op (DESIGN section 5).
struct StepState {
  u32 n_rows = 0;
  u32* tokens = nullptr;     // [rows_max]
  u32* positions = nullptr;  // [rows_max]; also the slot the row writes
  u32* visible = nullptr;    // [rows_max]; the row attends to slots [0, visible)
  std::span<const RowRun> runs{};
  std::span<const u32> wanted{};  // rows whose logits are wanted, ascending; may be empty
  bool takes_best = false;        // of each of them its best token alone: summarize(), no fetch()
  StepWatch* watch = nullptr;     // nullptr: wanted to the end
  KvWatch kv_watch{};             // between the ops, run by run; rows in the backend's space
};

struct Projection {
  const model::WeightMatrix* weight = nullptr;
  const f32* bias = nullptr;
  Rows out{};
};

// x += in * w^T.
struct ResidualProjection {
  const model::WeightMatrix* weight = nullptr;
  Rows in{};
  Rows product{};  // room for the product, [n, n_out], where it is not added at once
  Rows x{};
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* isa() const = 0;

  // Comes before the ops of a step: readies what they read of it, also cos and sin of its
  // positions and, where the host reads them from disk, its rows' embeddings, until the next call.
  virtual void begin_step(const StepState& step) = 0;
  // The step's watch has said no: ops do nothing any more, and what the step left means nothing.
  // Until the next step begins. A backend that cannot stop half way never says so.
  virtual bool is_abandoned() const { return false; }
  // out[i] = row tokens[i] of the table, for all rows of the step
  virtual void embed(const model::WeightMatrix& table, const StepState& step, Rows out) = 0;
  virtual void rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) = 0;
  // The same for each of n_heads heads of head_dim, in place.
  virtual void rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) = 0;
  // Several products of the same rows: out_j = x * w_j^T (+ bias_j). Fused: x is prepared once.
  virtual void project(Rows x, u32 n, std::span<const Projection> projections) = 0;
  virtual void project_add(const ResidualProjection& projection, u32 n) = 0;
  virtual void rope(Rows q, Rows k, u32 n) = 0;
  // K and V of every row go to slot positions[row] of its sequence.
  virtual void kv_append(const StepState& step, u32 cache_layer, Rows k, Rows v) = 0;
  virtual void attend(const StepState& step, u32 cache_layer, Rows q, Rows out) = 0;
  virtual void swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) = 0;
  // out[i] = x[wanted[i]], for all wanted rows of the step; out does not overlap x.
  virtual void gather(const StepState& step, Rows x, u32 d, Rows out) = 0;
  // Brings n rows to host memory, where finish() finds them. Where rows lie there anyway, `to` is
  // `from`.
  virtual void fetch(Rows from, u32 n, u64 d, Rows to) = 0;
  // In place of fetch(), in a step that takes the best: after finish(), summary(i) is that of row i
  // of n rows of d logits.
  virtual void summarize(Rows logits, u32 n, u32 d) = 0;
  virtual kernels::LogitsSummary summary(u32 row) const = 0;
  // Until everything so far has been carried out, or cannot be any more.
  virtual Result<void> finish() = 0;

  // Bytes that ops since the last call read from weights and from KV.
  struct Traffic {
    u64 weight_bytes = 0;
    u64 kv_bytes = 0;
  };
  virtual Traffic take_traffic() = 0;
};

}  // namespace tarn::engine
