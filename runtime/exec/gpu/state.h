// A step's state: what kernels read that changes from step to step. It lies in one piece, which
// goes to the device in one copy.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/attn/gather_slots_gpu.h"
#include "kernels/matmul/matvec_gpu.h"
#include "kernels/pq/pq_gpu.h"
#include "platform/base/checked.h"
#include "runtime/arena/carver.h"
#include "runtime/model/model_spec.h"

namespace tarn::exec {

// Kernels read whole buckets of rows, so a step's buffers have whole buckets.
constexpr u32 gpu_step_rows(u32 rows_max) {
  return static_cast<u32>(align_up(rows_max, kernels::kGpuMatvecRowsMax));
}

// The facts that a row that selects has to know: of its index, and of the slots that it reads.
// Zeros for one that does not.
struct GpuChoice {
  kernels::GpuPqNewRows rows;
  kernels::GpuSegments segments;
};

// The state of a step of up to `rows` rows, an element a row in each array. A decode step and its
// graph, which has room for a bucket of rows, have the same places. Where rows may select,
// attention reads other tables and sees as many slots as were gathered; else they are the sessions'
// and what is visible.
struct GpuState {
  u32 rows = 0;
  std::span<u32> n_rows;  // how many there are, and of how many the best is taken
  std::span<u32> tokens, slots, visible, logit_rows, sessions;
  std::span<u32> tables, attended;
  std::span<GpuChoice> choices;  // [min(rows, n_selecting)]
  std::span<f32> cos, sin;       // [rows, n_rot / 2]

  static GpuState carve(Carver& carver, const model::ModelSpec& spec, u32 n_rows, u32 n_selecting) {
    GpuState state;
    state.rows =
        n_rows < kernels::kGpuMatvecRowsMax ? std::bit_ceil(n_rows) : gpu_step_rows(n_rows);
    const auto take = [&]<class T>(std::span<T>& out, u64 n) {
      out = carver.take<T>("state", n, alignof(u32));
    };
    take(state.n_rows, 4);
    for (auto* words :
         {&state.tokens, &state.slots, &state.visible, &state.logit_rows, &state.sessions}) {
      take(*words, state.rows);
    }
    state.attended = state.visible;
    state.tables = state.sessions;
    if (n_selecting > 0) {
      take(state.tables, state.rows);
      take(state.attended, state.rows);
      take(state.choices, std::min(state.rows, n_selecting));
    }
    take(state.cos, u64{state.rows} * (spec.n_rot / 2));
    take(state.sin, u64{state.rows} * (spec.n_rot / 2));
    return state;
  }
  static u64 bytes(const model::ModelSpec& spec, u32 n_rows, u32 n_selecting) {
    Carver counter;
    carve(counter, spec, n_rows, n_selecting);
    return *counter.n_bytes().get();
  }
};

}  // namespace tarn::exec
