// runtime/engine/take.h
//
// Cutting the regions of the plan into the engine's parts, while it is built.
#pragma once

#include "platform/base/assert.h"
#include "platform/base/bump.h"
#include "runtime/exec/backend.h"
#include "runtime/plan/kv_type.h"
#include "runtime/plan/step_shape.h"

namespace tarn::engine {

static_assert(sizeof(step::Run) <= plan::kStepRunBytes);

inline constexpr u64 kTakeAlignment = 64;

// A piece of a region whose size the plan worked out: if it does not fit, the plan is wrong.
template <class T>
std::span<T> take(Bump& bump, u64 n) {
  const auto bytes = bump.alloc_bytes(n * sizeof(T), kTakeAlignment);
  TARN_ASSERT(bytes.has_value());
  return {reinterpret_cast<T*>(bytes->data()), n};
}

inline step::Rows take_rows(Bump& bump, u64 n_rows, u64 stride) {
  return {take<f32>(bump, n_rows * stride).data(), stride};
}

// A piece of the step's region, where the planner put it; an address of that region's space.
template <class T>
T* piece_at(std::byte* step, const plan::Piece& piece) {
  return reinterpret_cast<T*>(step + piece.offset_bytes);
}

}  // namespace tarn::engine
