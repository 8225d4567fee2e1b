// A test for every Heap: random pieces are aligned, do not overlap, keep their bytes, and can be
// allocated again after they were freed.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "platform/mem/heap.h"
#include "tests/support/seed.h"

namespace tarn::test {

// All pieces must lie in `region`; empty: anywhere. after_step() runs after every call.
template <class AfterStep>
void exercise_heap(Heap& heap, std::span<std::byte> region, u32 n_steps, AfterStep&& after_step) {
  struct Piece {
    unsigned char* data;
    u64 bytes;
    unsigned char mark;
  };
  Random random(seed_from_environment());
  CAPTURE(random.seed());
  std::vector<Piece> pieces;
  const auto intact = [](const Piece& piece) {
    for (u64 i = 0; i < piece.bytes; ++i) {
      if (piece.data[i] != piece.mark) return false;
    }
    return true;
  };
  for (u32 step = 0; step < n_steps; ++step) {
    const bool grow = pieces.empty() || random.below(100) < (step / 500 % 2 == 0 ? 65u : 35u);
    if (grow) {
      const u64 bytes = random.below(random.below(8) == 0 ? 5000 : 100);
      const u64 alignment = random.below(4) == 0 ? u64{1} << random.below(13) : 8;
      auto* data = static_cast<unsigned char*>(heap.allocate(bytes, alignment));
      if (data == nullptr) {
        REQUIRE_FALSE(region.empty());  // full: allowed, and nothing has changed
      } else {
        REQUIRE(reinterpret_cast<std::uintptr_t>(data) % alignment == 0);
        if (!region.empty()) {
          const auto* begin = reinterpret_cast<unsigned char*>(region.data());
          REQUIRE(data >= begin);
          REQUIRE(data + bytes <= begin + region.size());
        }
        const auto mark = static_cast<unsigned char>(random.next());
        std::memset(data, mark, bytes);
        pieces.push_back({data, bytes, mark});
      }
    } else {
      const u64 pick = random.below(pieces.size());
      REQUIRE(intact(pieces[pick]));
      heap.deallocate(pieces[pick].data);
      pieces[pick] = pieces.back();
      pieces.pop_back();
    }
    after_step();
  }
  for (const Piece& piece : pieces) {
    REQUIRE(intact(piece));
    heap.deallocate(piece.data);
    after_step();
  }
  heap.deallocate(nullptr);
}

}  // namespace tarn::test
