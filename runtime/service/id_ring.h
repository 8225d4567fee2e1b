// The ids of texts on their way from the text thread to the engine's: blocks of a ring, each in one
// piece, given back in the order in which they were taken.
//
//   memory     lent: TextMemory of the engine, twice the context
//   when full  take() finds no room until the oldest block is given back
//   thread     any, under the lock of its owner; the ids of a block are its holder's
//
// Invariant: begin_ <= end_ <= begin_ + capacity; blocks lie in between. A block has half of the
// ring at most, so it finds room once the ring is empty.
#pragma once

#include <optional>
#include <span>

#include "platform/base/assert.h"
#include "platform/base/types.h"

namespace tarn::service {

// The ids that a text stage leaves for the engine's.
struct Ids {
  std::span<u32> ids{};
  std::span<u8> notes{};  // [ids.size()] of a conversation's, and of parts (chat/conversation.h)
};

class IdRing {
 public:
  struct Block {
    u64 begin = 0;
    u32 n = 0;
    u32 n_skipped = 0;  // in front of it, because a block does not go round the end
  };

  void init(std::span<u32> ids, std::span<u8> notes) {
    ids_ = ids;
    notes_ = notes;
    begin_ = end_ = 0;
  }
  u64 capacity() const { return ids_.size(); }
  std::optional<Block> take(u32 n) {
    const u64 capacity = ids_.size();
    if (begin_ == end_) begin_ = end_ = 0;
    if (n == 0) return Block{.begin = end_};
    const u64 at = end_ % capacity;
    const u64 n_skipped = at + n > capacity ? capacity - at : 0;
    if (end_ - begin_ + n_skipped + n > capacity) return std::nullopt;
    const Block block{end_ + n_skipped, n, static_cast<u32>(n_skipped)};
    end_ = block.begin + n;
    return block;
  }
  // Keeps the first n of the block that was taken last.
  void shrink(Block* block, u32 n) {
    TARN_DEBUG_ASSERT(end_ == block->begin + block->n && n <= block->n);
    block->n = n;
    if (n == 0) {
      block->begin -= block->n_skipped;
      block->n_skipped = 0;
    }
    end_ = block->begin + n;
  }
  // The oldest block.
  void give_back(const Block& block) {
    if (block.n == 0) return;
    TARN_DEBUG_ASSERT(block.begin - block.n_skipped == begin_);
    begin_ = block.begin + block.n;
  }
  Ids of(const Block& block) const {
    if (block.n == 0) return {};
    const u64 at = block.begin % ids_.size();
    return {ids_.subspan(at, block.n), notes_.subspan(at, block.n)};
  }

 private:
  std::span<u32> ids_{};
  std::span<u8> notes_{};
  u64 begin_ = 0, end_ = 0;  // counted on, round after round
};

}  // namespace tarn::service
