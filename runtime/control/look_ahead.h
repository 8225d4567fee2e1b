// Counts the sessions, in the order of their turns, whose KV has room together. AttentionStore
// (arXiv:2403.19708, section 3.3) takes capacity / mean size of a session's KV, for the memory that
// is read ahead and for the memory and disk that are not evicted. Here each session counts with its
// own size.
#pragma once

#include "platform/base/types.h"

namespace tarn::control {

class LookAhead {
 public:
  explicit LookAhead(u64 capacity) : left_(capacity) {}
  // Returns whether the next session has room. Behind the first that has none, none has.
  bool takes(u64 size) {
    is_open_ = is_open_ && size <= left_;
    if (is_open_) left_ -= size;
    return is_open_;
  }

 private:
  u64 left_ = 0;
  bool is_open_ = true;
};

}  // namespace tarn::control
