// runtime/engine/take.h
//
// Cutting the regions of the plan into the engine's parts, while it is built.
#pragma once

#include "platform/base/assert.h"
#include "platform/base/bump.h"

namespace tarn::engine {

inline constexpr u64 kTakeAlignment = 64;

// A piece of a region whose size the plan worked out: if it does not fit, the plan is wrong.
template <class T>
std::span<T> take(Bump& bump, u64 n) {
  const auto bytes = bump.alloc_bytes(n * sizeof(T), kTakeAlignment);
  TARN_ASSERT(bytes.has_value());
  return {reinterpret_cast<T*>(bytes->data()), n};
}

}  // namespace tarn::engine
