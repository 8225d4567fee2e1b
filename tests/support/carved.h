// Memory of a part as the plan takes it: counted, then placed.
#pragma once

#include <vector>

#include "runtime/arena/carver.h"

namespace tarn::test {

// Runs init(Carver&) twice; what it placed lies in the memory returned.
template <class Init>
[[nodiscard]] std::vector<std::byte> carved(Init&& init) {
  Carver counting;
  init(counting);
  std::vector<std::byte> memory(*counting.n_bytes().get());
  Carver placing(memory);
  init(placing);
  return memory;
}

}  // namespace tarn::test
