// A step's state: what kernels read that changes from step to step. It lies in one piece, which
// goes to the device in one copy.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/attn/gather_slots_gpu.h"
#include "kernels/matmul/matvec_gpu.h"
#include "kernels/pq/pq_gpu.h"
#include "platform/base/checked.h"
#include "runtime/model/model_spec.h"

namespace tarn::exec {

// Kernels read whole buckets of rows, so a step's buffers have whole buckets.
constexpr u32 gpu_step_rows(u32 rows_max) {
  return static_cast<u32>(align_up(rows_max, kernels::kGpuMatvecRowsMax));
}

// What a row that selects has to know: of its index, and of the slots that it reads. Zeros for one
// that does not.
struct GpuChoice {
  kernels::GpuPqNewRows rows;
  kernels::GpuSegments segments;
};

// Where the state of n_rows rows lies in the piece, in bytes: how many rows there are and of how
// many the best is taken, then an element of each array a row. So many rows that a decode step and
// its graph, which has room for a bucket's, agree on the places. Where rows may select, of at most
// n_selecting, attention reads other tables and sees as many slots as were gathered; else they are
// the sessions' and what is visible.
struct GpuStateShape {
  u32 rows = 0;
  u64 n_rows = 0, tokens = 0, slots = 0, visible = 0, logit_rows = 0, sessions = 0;  // u32
  u64 tables = 0, attended = 0;                                                      // u32
  u64 choices = 0;       // GpuChoice, of min(rows, n_selecting) rows
  u64 cos = 0, sin = 0;  // n_rot / 2 f32
  u64 bytes = 0;
};
constexpr GpuStateShape gpu_state_shape(const model::ModelSpec& spec, u32 n_rows, u32 n_selecting) {
  GpuStateShape shape;
  shape.rows = n_rows < kernels::kGpuMatvecRowsMax ? std::bit_ceil(n_rows) : gpu_step_rows(n_rows);
  shape.bytes = 4 * sizeof(u32);
  const auto place = [&](u64& offset, u64 row_bytes) {
    offset = shape.bytes;
    shape.bytes += shape.rows * row_bytes;
  };
  place(shape.tokens, sizeof(u32));
  place(shape.slots, sizeof(u32));
  place(shape.visible, sizeof(u32));
  place(shape.logit_rows, sizeof(u32));
  place(shape.sessions, sizeof(u32));
  shape.attended = shape.visible;
  shape.tables = shape.sessions;
  if (n_selecting > 0) {
    place(shape.tables, sizeof(u32));
    place(shape.attended, sizeof(u32));
    shape.choices = shape.bytes;
    shape.bytes += std::min(shape.rows, n_selecting) * sizeof(GpuChoice);
  }
  place(shape.cos, u64{spec.n_rot} / 2 * sizeof(f32));
  place(shape.sin, u64{spec.n_rot} / 2 * sizeof(f32));
  return shape;
}

}  // namespace tarn::exec
