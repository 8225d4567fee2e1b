#include "platform/mem/heap.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn {

// The header lies in front of the piece; the links use the piece while it is free.
struct RegionHeap::Block {
  u64 bytes_and_used;  // of the whole block, a multiple of 16; bit 0: used
  u64 previous_bytes;  // of the block before; 0 for the first
  Block* next_free;
  Block* previous_free;

  u64 bytes() const { return bytes_and_used & ~u64{15}; }
  bool used() const { return (bytes_and_used & 1) != 0; }
  void set(u64 bytes, bool is_used) { bytes_and_used = bytes | (is_used ? 1 : 0); }
  Block* at(u64 offset_bytes) const {
    return reinterpret_cast<Block*>(reinterpret_cast<std::uintptr_t>(this) + offset_bytes);
  }
  Block* next() const { return at(bytes()); }
  Block* previous() const { return at(u64{0} - previous_bytes); }
};

namespace {
constexpr u64 kGrainBytes = 16;
constexpr u64 kHeaderBytes = 16;
constexpr u64 kBlockBytesMin = 32;  // a free block holds its two links

u64 address_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }
}  // namespace

void RegionHeap::init(std::span<std::byte> region) {
  static_assert(sizeof(Block) == kBlockBytesMin);
  const u64 begin = align_up(address_of(region.data()), kGrainBytes);
  const u64 end = (address_of(region.data()) + region.size()) & ~(kGrainBytes - 1);
  TARN_ASSERT(region.size() >= 64 && end - begin >= kBlockBytesMin + kHeaderBytes);
  first_ = reinterpret_cast<Block*>(begin);
  end_ = reinterpret_cast<Block*>(end - kHeaderBytes);
  const u64 bytes = address_of(end_) - begin;
  first_->set(bytes, false);
  first_->previous_bytes = 0;
  end_->bytes_and_used = kHeaderBytes | 1;
  end_->previous_bytes = bytes;
  free_ = nullptr;
  insert_free(first_);
  used_bytes_ = used_bytes_max_ = 0;
}

void RegionHeap::insert_free(Block* block) {
  block->next_free = free_;
  block->previous_free = nullptr;
  if (free_ != nullptr) free_->previous_free = block;
  free_ = block;
}

void RegionHeap::remove_free(Block* block) {
  if (block->previous_free != nullptr) block->previous_free->next_free = block->next_free;
  if (block->next_free != nullptr) block->next_free->previous_free = block->previous_free;
  if (free_ == block) free_ = block->next_free;
}

void RegionHeap::cut_tail(Block* block, u64 bytes) {
  const u64 rest_bytes = block->bytes() - bytes;
  if (rest_bytes < kBlockBytesMin) return;
  Block* rest = block->at(bytes);
  rest->set(rest_bytes, false);
  rest->previous_bytes = bytes;
  rest->next()->previous_bytes = rest_bytes;
  block->set(bytes, block->used());
  insert_free(rest);
}

void* RegionHeap::allocate(u64 bytes, u64 alignment) {
  TARN_ASSERT(first_ != nullptr && alignment <= kAlignmentMax);
  const auto padded = (Checked(bytes) + Checked(kHeaderBytes)).aligned_up(kGrainBytes).get();
  if (!padded) return nullptr;
  const u64 need_bytes = std::max(*padded, kBlockBytesMin);
  for (Block* block = free_; block != nullptr; block = block->next_free) {
    // The piece's address; a gap before it must be large enough for a free block.
    const u64 begin = address_of(block);
    u64 header = align_up(begin + kHeaderBytes, alignment) - kHeaderBytes;
    if (header != begin && header - begin < kBlockBytesMin) {
      header = align_up(begin + kBlockBytesMin + kHeaderBytes, alignment) - kHeaderBytes;
    }
    const u64 gap_bytes = header - begin;
    if (gap_bytes > block->bytes() || block->bytes() - gap_bytes < need_bytes) continue;

    Block* taken = block;
    remove_free(block);
    if (gap_bytes > 0) {
      cut_tail(block, gap_bytes);  // the tail becomes a free block, which holds the piece
      taken = block->next();
      remove_free(taken);
      insert_free(block);
    }
    cut_tail(taken, need_bytes);
    taken->set(taken->bytes(), true);
    used_bytes_ += taken->bytes();
    used_bytes_max_ = std::max(used_bytes_max_, used_bytes_);
    return reinterpret_cast<void*>(address_of(taken) + kHeaderBytes);
  }
  return nullptr;
}

void RegionHeap::deallocate(void* piece) {
  if (piece == nullptr) return;
  Block* block = reinterpret_cast<Block*>(address_of(piece) - kHeaderBytes);
  TARN_ASSERT(block >= first_ && block < end_);
  TARN_ASSERT(block->used() && block->next()->previous_bytes == block->bytes());
  used_bytes_ -= block->bytes();
  block->set(block->bytes(), false);
  Block* next = block->next();
  if (!next->used()) {
    remove_free(next);
    block->set(block->bytes() + next->bytes(), false);
  }
  if (block->previous_bytes != 0 && !block->previous()->used()) {
    Block* previous = block->previous();
    remove_free(previous);
    previous->set(previous->bytes() + block->bytes(), false);
    block = previous;
  }
  block->next()->previous_bytes = block->bytes();
  insert_free(block);
}

void RegionHeap::check_invariants() const {
  u64 used_bytes = 0, n_free = 0, previous_bytes = 0;
  bool previous_free = false;
  const Block* block = first_;
  for (; block < end_; block = block->next()) {
    TARN_ASSERT(block->previous_bytes == previous_bytes);
    TARN_ASSERT(block->bytes() >= kBlockBytesMin);
    TARN_ASSERT(block->used() || !previous_free);
    used_bytes += block->used() ? block->bytes() : u64{0};
    n_free += block->used() ? u64{0} : u64{1};
    previous_free = !block->used();
    previous_bytes = block->bytes();
  }
  TARN_ASSERT(block == end_ && end_->previous_bytes == previous_bytes);
  TARN_ASSERT(used_bytes == used_bytes_);
  for (const Block* free = free_; free != nullptr; free = free->next_free) {
    TARN_ASSERT(!free->used() && n_free > 0);
    --n_free;
  }
  TARN_ASSERT(n_free == 0);
}

}  // namespace tarn
