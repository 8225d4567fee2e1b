// runtime/config/code_control.h
//
// A negative control: breaks the codes of method pq on purpose, so that a measurement shows that it
// notices. No key of the configuration sets one; programs that measure lend it to the engine by
// SelectConfig::control, for as long as the engine lives.
//
//   thread   any worker; an object must not change
#pragma once

#include "platform/base/types.h"

namespace tarn {

class CodeControl {
 public:
  // A key of the cache before it is clustered or coded.
  virtual void change(u32 /*slot*/, f32* /*key*/) const {}
  // Of the middle's n places the one that is read where `place` was chosen; one to one.
  virtual u32 instead_of(u32 place, u32 /*n*/) const { return place; }

 protected:
  ~CodeControl() = default;
};

}  // namespace tarn
