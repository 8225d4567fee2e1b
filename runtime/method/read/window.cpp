#include "runtime/method/read/window.h"

#include <algorithm>

namespace tarn::method {

u32 select_window(const SelectionArgs& args) {
  SelectionArgs longer = args;
  longer.ranges.middle_end -= std::min(args.k, args.ranges.n_middle());
  return compose_slots(longer, nullptr, 0);
}

}  // namespace tarn::method
