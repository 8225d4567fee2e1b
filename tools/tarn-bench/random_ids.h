// Random token ids, the input of benches.
#pragma once

#include <vector>

#include "platform/base/types.h"

namespace tarn::bench {

inline std::vector<u32> random_ids(u64 seed, u32 n, u32 n_vocab) {
  std::vector<u32> ids(n);
  u64 state = seed;
  for (u32& id : ids) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    id = static_cast<u32>((state >> 33) % n_vocab);
  }
  return ids;
}

}  // namespace tarn::bench
