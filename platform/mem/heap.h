// The interface for memory that cannot be planned piece by piece: the general heap of an executable
// (requests, JSON, strings), inside one region of the plan. The core does not use it. RegionHeap is
// the simple implementation without dependencies; tools/support has the system's heap and
// mimalloc's.
//
//   thread       one thread uses a heap
//   when full    allocate() returns nullptr, and only that request is refused
#pragma once

#include <span>

#include "platform/base/types.h"

namespace tarn {

class Heap {
 public:
  static constexpr u64 kAlignmentMax = 4096;

  virtual const char* name() const = 0;
  // Allocates at least `bytes`, aligned to a power of two of at most kAlignmentMax; nullptr when
  // full. 0 bytes are a distinct piece.
  virtual void* allocate(u64 bytes, u64 alignment) = 0;
  virtual void deallocate(void* piece) = 0;  // nullptr does nothing

 protected:
  ~Heap() = default;
};

// First fit over the free blocks of a borrowed region; neighbouring free blocks are merged.
//
// Benefits  no dependency, no system call, no byte outside the region; a freed heap is whole again.
// Costs     a search is linear in the number of free blocks; 16 bytes a block.
//
//   invariant   blocks have no gaps: block.bytes = distance to the next block = its previous_bytes;
//               no two free blocks are neighbours; the sum of free blocks' bytes + used_bytes() =
//               the region less its end mark
class RegionHeap final : public Heap {
 public:
  // Borrows a region of at least 64 bytes until the heap is no longer used.
  void init(std::span<std::byte> region);

  const char* name() const override { return "region"; }
  void* allocate(u64 bytes, u64 alignment) override;
  void deallocate(void* piece) override;

  u64 used_bytes() const { return used_bytes_; }  // with headers and padding
  u64 used_bytes_max() const { return used_bytes_max_; }
  void check_invariants() const;  // walks the whole heap, asserts

 private:
  struct Block;

  void insert_free(Block* block);
  void remove_free(Block* block);
  // Makes `block` (not in the free list) end after `bytes` and frees the rest, if that makes a
  // block.
  void cut_tail(Block* block, u64 bytes);

  Block* first_ = nullptr;
  Block* end_ = nullptr;  // a used block of header size that stops every walk
  Block* free_ = nullptr;
  u64 used_bytes_ = 0, used_bytes_max_ = 0;
};

}  // namespace tarn
