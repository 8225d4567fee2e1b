// The texts of the mover's errors: each names its remedy.
#pragma once

#include "platform/base/result.h"
#include "runtime/store/store.h"

namespace tarn::kv {

struct Stuck {
  store::Begun refused = store::Begun::begun;  // why the last spill did not begin
  bool is_crowded_out = false;                 // the store had no place for the last move
  u32 n_frames = 0;
  u32 n_dirty = 0;  // groups that are nowhere but in memory
};

Unexpected no_frame(const Stuck& why);  // no frame can be freed any more
Unexpected not_saved(store::Begun refused, const Error& why_store);
Unexpected lost();

}  // namespace tarn::kv
