// platform/mem/heap.h
//
// The seam for what cannot be planned piece by piece: the general heap of an executable (requests,
// JSON, strings), inside one region of the plan. The core itself does not use it. RegionHeap is the
// simple implementation that needs nothing; tools/support has the system's heap and mimalloc's.
//
//   thread       one thread uses a heap
//   when full    allocate() returns nullptr: the request is refused, nothing else
#pragma once

#include <span>

#include "platform/base/types.h"

namespace tarn {

class Heap {
 public:
  static constexpr u64 kAlignmentMax = 4096;

  virtual const char* name() const = 0;
  // At least `bytes`, aligned to a power of two of at most kAlignmentMax; nullptr when full. 0
  // bytes are a piece of their own.
  virtual void* allocate(u64 bytes, u64 alignment) = 0;
  virtual void deallocate(void* piece) = 0;  // nullptr does nothing

 protected:
  ~Heap() = default;
};

// First fit over the free blocks of a borrowed region; neighbours that are free become one.
//
// Benefits  no dependency, no system call, no byte outside the region; a freed heap is whole again.
// Costs     a search is linear in the number of free blocks; 16 bytes a block.
//
//   invariant   blocks lie without gaps: block.bytes is the distance to the next, and the next
//               one's previous_bytes says the same; no two free blocks are neighbours; the sum of
//               free blocks' bytes + used_bytes() = the region less its end mark
class RegionHeap final : public Heap {
 public:
  // Borrows the region until the heap is no longer used. At least 64 bytes.
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
  // Makes `block` (not in the free list) end after `bytes` and frees the rest, if it can stand
  // alone.
  void cut_tail(Block* block, u64 bytes);

  Block* first_ = nullptr;
  Block* end_ = nullptr;  // a used block of header size that stops every walk
  Block* free_ = nullptr;
  u64 used_bytes_ = 0, used_bytes_max_ = 0;
};

}  // namespace tarn
