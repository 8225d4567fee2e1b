// How much of a prompt was not computed again.
#pragma once

#include <algorithm>

#include "platform/base/types.h"

namespace tarn::kv {

// Tokens of a prefix whose KV was there.
struct Reused {
  u32 n_from_memory = 0, n_from_disk = 0;
  // Tokens of chunks whose KV was transplanted, and those that were computed anew. With any of the
  // former what follows is approximate.
  u32 n_placed = 0, n_recomputed = 0;
  void forget_blended() { n_placed = n_recomputed = 0; }
  void add_blended(u32 n_placed_more, u32 n_recomputed_more) {
    n_placed += n_placed_more;
    n_recomputed += n_recomputed_more;
  }
  u32 n_tokens() const { return n_from_memory + n_from_disk; }
  void bound(u32 n) {
    if (n_tokens() > n) forget(n_tokens() - n);
  }
  // Takes the last n of them away.
  void forget(u32 n) {
    const u32 n_disk = std::min(n, n_from_disk);
    n_from_disk -= n_disk;
    n_from_memory -= std::min(n - n_disk, n_from_memory);
  }
  Reused& operator+=(const Reused& more) {
    n_from_memory += more.n_from_memory;
    n_from_disk += more.n_from_disk;
    add_blended(more.n_placed, more.n_recomputed);
    return *this;
  }
};

}  // namespace tarn::kv
