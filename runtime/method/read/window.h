// Window: the last k of the middle, so that the local window is longer by as many tokens.
#pragma once

#include <algorithm>

#include "runtime/method/method.h"

namespace tarn::method {

class WindowReader final : public Reader {
 public:
  explicit WindowReader(const ReaderArgs& /*args*/) {}
  u32 choose(const SelectionArgs& args, const KeyPages& /*keys*/) const override {
    SelectionArgs longer = args;
    longer.ranges.middle_end -= std::min(args.k, args.ranges.n_middle());
    return compose_slots(longer, nullptr, 0);
  }
};

}  // namespace tarn::method
