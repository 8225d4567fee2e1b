// A look-ahead window over sessions in the order of their turns: those whose KV has room together.
// AttentionStore (arXiv:2403.19708, section 3.3) takes capacity / mean size of a session's KV: of
// the memory for what is read ahead, of memory and disk for what is not evicted. Here each counts
// with its own size.
#pragma once

#include "platform/base/types.h"

namespace tarn::control {

class Window {
 public:
  explicit Window(u64 capacity) : left_(capacity) {}
  // Of the next session: whether it is within. Behind the first one that is not, none is.
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
