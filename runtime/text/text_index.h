// Two hash tables: from a token's text to its id, and from a pair of ids to the merge that joins
// them. They use open addressing in lent memory and are filled once. Both are half full, probe
// linearly, and refuse an entry more than kProbesMax from its place, so no vocabulary makes a
// look-up slow.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "platform/base/types.h"
#include "runtime/text/tokenizer.h"

namespace tarn::text {

// The tokens' texts, without gaps.
struct TextTable {
  const char* bytes = nullptr;
  const u32* starts = nullptr;  // [n + 1]

  std::string_view at(u32 id) const { return {bytes + starts[id], starts[id + 1] - starts[id]}; }
};

enum class Insertion : u8 { done, repeated, crowded };

class TextIndex {
 public:
  // The number of slots for n entries at half load.
  static constexpr u64 slots_for(u64 n) { return 2 * n + 1; }

  TextIndex() = default;
  // Borrows both; `texts` may still grow.
  TextIndex(const TextTable& texts, std::span<u64> slots);

  static u64 hash(std::string_view text);
  Insertion insert(u32 id, u64 hash);  // hash of its text
  TokenId find(std::string_view text) const { return find(text, hash(text)); }
  TokenId find(std::string_view text, u64 hash) const;
  // Prefetches for many look-ups: an insert() costs one cache miss, a find() two in sequence, and
  // misses of different texts can overlap. Prefetch all slots, then all texts, then insert or find.
  // Without them the opening of a 128K vocabulary takes 50 ms more.
  void prefetch_slot(u64 hash) const;
  void prefetch_text(u64 hash) const;  // of the probable entry

 private:
  u64* locate(std::string_view text, u64 hash) const;

  TextTable texts_{};
  std::span<u64> slots_{};  // hash's low half << 32 | id + 1; 0 is free
};

struct Merge {
  u32 left = kNoToken;  // kNoToken: the slot is free
  u32 right = 0;
  u32 rank = 0;  // the merge's place in the file: low ranks merge first
  u32 result = 0;
};

class MergeIndex {
 public:
  static constexpr u64 slots_for(u64 n) { return 2 * n + 1; }

  MergeIndex() = default;
  explicit MergeIndex(std::span<Merge> slots);

  Insertion insert(const Merge& merge);
  void prefetch(u32 left, u32 right) const;
  // The slot of a pair; kNoSlot if nothing joins it.
  u32 find(u32 left, u32 right) const;
  const Merge& at(u32 slot) const { return slots_[slot]; }

  static constexpr u32 kNoSlot = ~u32{0};

 private:
  Merge* locate(u32 left, u32 right) const;

  std::span<Merge> slots_{};
};

}  // namespace tarn::text
