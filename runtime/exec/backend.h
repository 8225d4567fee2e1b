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
#include "runtime/step/batch.h"

namespace tarn::exec {

using step::from_row;
using step::Rows;

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
  virtual void begin_step(const step::Batch& batch) = 0;
  // Sets of each run how many of its groups need no frame, as they stay on the device.
  virtual void note_kept_groups(const step::Batch& batch) const = 0;
  // Returns whether it stops half way when the step's host says no. Then is_abandoned() until the
  // next step begins: ops do nothing any more, and what the step left means nothing.
  virtual bool may_abandon() const = 0;
  virtual bool is_abandoned() const = 0;
  // out[i] = row tokens[i] of the table, for all rows of the step
  virtual void embed(const model::WeightMatrix& table, const step::Batch& batch, Rows out) = 0;
  virtual void rms_norm(Rows x, const f32* weight, f32 eps, u32 d, u32 n, Rows out) = 0;
  // Normalises each of n_heads heads of head_dim, in place.
  virtual void rms_norm_heads(Rows x, const f32* weight, f32 eps, u32 n_heads, u32 n) = 0;
  // Computes several products of the same rows: out_j = x * w_j^T (+ bias_j). Fused: x is prepared
  // once.
  virtual void project(Rows x, u32 n, std::span<const Projection> projections) = 0;
  virtual void project_add(const ResidualProjection& projection, u32 n) = 0;
  virtual void rope(Rows q, Rows k, u32 n) = 0;
  // K and V of every row go to slot slots[row] of its sequence.
  virtual void kv_append(const step::Batch& batch, u32 cache_layer, Rows k, Rows v) = 0;
  virtual void attend(const step::Batch& batch, u32 cache_layer, Rows q, Rows out) = 0;
  virtual void swiglu(Rows gate, Rows up, u32 d, u32 n, Rows out) = 0;
  // out[i] = x[logit_rows[i]], for all logit rows of the batch; out does not overlap x.
  virtual void gather(const step::Batch& batch, Rows x, u32 d, Rows out) = 0;
  // Brings n rows to host memory, where finish() finds them. Where rows lie there anyway, `to` is
  // `from`.
  virtual void fetch(Rows from, u32 n, u64 d, Rows to) = 0;
  // In place of fetch(), in a step that takes the best: after finish(), summary(i) is that of row i
  // of n rows of d logits.
  virtual void summarize(Rows logits, u32 n, u32 d) = 0;
  virtual kernels::LogitsSummary summary(u32 row) const = 0;
  // Until everything so far has been carried out, or cannot be any more.
  virtual Result<void> finish() = 0;

  // Bytes that ops since the last call read from weights and from KV; and of chosen slots how long
  // copying them and attention to them took, all workers together.
  struct Traffic {
    u64 weight_bytes = 0;
    u64 kv_bytes = 0;
    u64 gather_ns = 0, attend_ns = 0;
  };
  virtual Traffic take_traffic() = 0;
};

}  // namespace tarn::exec
