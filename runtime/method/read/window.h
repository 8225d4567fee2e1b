// Window: no k: the local window is longer by as many tokens.
#pragma once

#include "runtime/method/method.h"

namespace tarn::method {

u32 select_window(const SelectionArgs& args);

class WindowReader final : public Reader {
 public:
  explicit WindowReader(const ReaderArgs& /*args*/) {}
  u32 choose(const SelectionArgs& args, const KeyPages& /*keys*/) const override {
    return select_window(args);
  }
};

}  // namespace tarn::method
