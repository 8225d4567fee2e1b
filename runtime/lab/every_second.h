// The smallest method there is: every second token of the middle, from its begin on.
#pragma once

#include <algorithm>

#include "runtime/method/method.h"

namespace tarn::lab {

class EverySecond final : public method::Reader {
 public:
  explicit EverySecond(const method::ReaderArgs& /*args*/) {}
  u32 choose(const method::SelectionArgs& args, const method::KeyPages& /*keys*/) const override {
    const method::SelectionScratch scratch = method::carve_selection(args);
    const u32 n = std::min(args.k, (args.ranges.n_middle() + 1) / 2);
    for (u32 i = 0; i < n; ++i) scratch.places[i] = 2 * i;
    return method::compose_slots(args, scratch.places, n);
  }
};

}  // namespace tarn::lab
