// A negative control: breaks the codes of method pq on purpose, to show that a measurement notices.
// No configuration key sets it; a measuring program lends it to the engine in
// SelectConfig::control, for the engine's lifetime.
//
//   thread   any worker; an object must not change
#pragma once

#include "platform/base/types.h"

namespace tarn {

class CodeControl {
 public:
  // Changes a key of the cache before it is clustered or coded.
  virtual void change(u32 /*slot*/, f32* /*key*/) const {}
  // Returns the place, among the middle's n, to read instead of `place`; one to one.
  virtual u32 instead_of(u32 place, u32 /*n*/) const { return place; }

 protected:
  ~CodeControl() = default;
};

}  // namespace tarn
