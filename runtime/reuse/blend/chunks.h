// Chunks of a session's tokens: passages whose KV may come from elsewhere, where it was computed
// alone (CacheBlend, arXiv:2405.16444). A chunk's KV is that of [BOS] and its ids, in whole pages:
// ordinary pages of a prefix, found by their tokens like all others. What its last page leaves
// over is computed with the rest of the prompt.
//
//   feed      chunks that were fed together are blended together: which tokens are computed anew is
//             one choice over all of them
//   first     a chunk at its own prefix is no chunk: its KV is exact where it stands
//   thread    the engine's
#pragma once

#include <algorithm>
#include <array>
#include <span>

#include "platform/base/types.h"

namespace tarn::reuse {

struct Chunk {
  u32 begin = 0, end = 0;  // tokens of the session whose KV can be transplanted
  u32 feed = 0;
  f32 recompute = 0;  // the share of them that is computed anew, 0 to 1
  u32 n_tokens() const { return end - begin; }
};

// A part of what is fed, in tokens from its begin on.
struct ChunkSpan {
  u32 begin = 0, end = 0;
};

// In order, apart from each other.
class Chunks {
 public:
  static constexpr u32 kMax = 128;

  bool is_full() const { return n_ == kMax; }
  u32 n_left() const { return kMax - n_; }
  void begin_feed() { ++n_feeds_; }
  void add(Chunk chunk) {
    chunk.feed = n_feeds_;
    chunks_[n_++] = chunk;
  }
  // Cuts to the session's first n_tokens, of which the last one is computed in any case.
  void truncate(u32 n_tokens) {
    while (n_ > 0 && chunks_[n_ - 1].end >= n_tokens) --n_;
  }

  // Returns the chunks of the first feed whose last chunk ends behind n_slots; empty: there is
  // none.
  std::span<const Chunk> behind(u32 n_slots) const {
    const std::span<const Chunk> all(chunks_.data(), n_);
    const auto first = std::ranges::find_if(all, [&](const Chunk& c) { return c.end > n_slots; });
    if (first == all.end()) return {};
    const auto is_of_feed = [&](const Chunk& c) { return c.feed == first->feed; };
    const auto begin = std::ranges::find_if(all, is_of_feed);
    const auto end = std::find_if_not(first, all.end(), is_of_feed);
    return {begin, end};
  }
  // Tokens from here on may have KV that does not follow from the tokens before them.
  u32 first_token() const { return n_ == 0 ? ~u32{0} : chunks_[0].begin; }

 private:
  u32 n_ = 0, n_feeds_ = 0;
  std::array<Chunk, kMax> chunks_{};
};

}  // namespace tarn::reuse
