// The hash tables of tables.h.
#include <algorithm>
#include <cstring>

#include "platform/base/random_at.h"
#include "runtime/text/tables.h"

namespace tarn::text {
namespace {

u64 load(const char* bytes, u64 n_bytes) {
  u64 word = 0;
  std::memcpy(&word, bytes, n_bytes);
  return word;
}

u64 pair_hash(u32 left, u32 right) { return mix64(u64{left} << 32 | right); }

// Maps the high half of a hash to a place below n, without a division.
u64 place(u64 hash, u64 n) { return (hash >> 32) * n >> 32; }

// The first slot that fits(), from the place of a hash on; nullptr if kProbesMax slots do not.
template <class Entry, class Fits>
Entry* probe(std::span<Entry> slots, u64 hash, Fits&& fits) {
  u64 slot = place(hash, slots.size());
  for (u32 n_probes = 0; n_probes < VocabLimits::kProbesMax; ++n_probes) {
    if (fits(slots[slot])) return &slots[slot];
    slot = slot + 1 == slots.size() ? 0 : slot + 1;
  }
  return nullptr;
}

constexpr u64 kLowHalf = 0xFFFFFFFFull;

}  // namespace

u64 TextIndex::hash(std::string_view text) {
  constexpr u64 kMultiplier = 0x9E3779B97F4A7C15ull;
  const char* bytes = text.data();
  const u64 n = text.size();
  u64 state = n * kMultiplier;
  if (n >= 8) {
    for (u64 at = 0; at + 8 < n; at += 8) {
      state = (state ^ load(bytes + at, 8)) * kMultiplier;
      state ^= state >> 29;
    }
    return mix64(state ^ load(bytes + n - 8, 8));
  }
  if (n >= 4) return mix64(state ^ (load(bytes, 4) << 32 | load(bytes + n - 4, 4)));
  for (u64 at = 0; at < n; ++at) state ^= static_cast<u64>(static_cast<u8>(bytes[at])) << 8 * at;
  return mix64(state);
}

TextIndex::TextIndex(const TextTable& texts, std::span<u64> slots) : texts_(texts), slots_(slots) {
  std::fill(slots_.begin(), slots_.end(), u64{0});
}

// The slot of a text, or the free one where it would be.
u64* TextIndex::locate(std::string_view text, u64 hash) const {
  return probe(slots_, hash, [&](u64 entry) {
    const bool may_be = entry >> 32 == (hash & kLowHalf);
    return entry == 0 || (may_be && texts_.at(static_cast<u32>(entry) - 1) == text);
  });
}

Insertion TextIndex::insert(u32 id, u64 key) {
  u64* const slot = locate(texts_.at(id), key);
  if (slot == nullptr) return Insertion::crowded;
  if (*slot != 0) return Insertion::repeated;
  *slot = (key & kLowHalf) << 32 | (u64{id} + 1);
  return Insertion::done;
}

TokenId TextIndex::find(std::string_view text, u64 key) const {
  const u64* const slot = locate(text, key);
  return slot != nullptr && *slot != 0 ? static_cast<u32>(*slot) - 1 : kNoToken;
}

void TextIndex::prefetch_slot(u64 hash) const {
  __builtin_prefetch(&slots_[place(hash, slots_.size())]);
}

void TextIndex::prefetch_text(u64 hash) const {
  const u64 entry = slots_[place(hash, slots_.size())];
  if (entry != 0) __builtin_prefetch(texts_.at(static_cast<u32>(entry) - 1).data());
}

MergeIndex::MergeIndex(std::span<Merge> slots) : slots_(slots) {
  std::fill(slots_.begin(), slots_.end(), Merge{});
}

Merge* MergeIndex::locate(u32 left, u32 right) const {
  return probe(slots_, pair_hash(left, right), [&](const Merge& entry) {
    return entry.left == kNoToken || (entry.left == left && entry.right == right);
  });
}

Insertion MergeIndex::insert(const Merge& merge) {
  Merge* const slot = locate(merge.left, merge.right);
  if (slot == nullptr) return Insertion::crowded;
  if (slot->left != kNoToken) return Insertion::repeated;
  *slot = merge;
  return Insertion::done;
}

void MergeIndex::prefetch(u32 left, u32 right) const {
  __builtin_prefetch(&slots_[place(pair_hash(left, right), slots_.size())]);
}

u32 MergeIndex::find(u32 left, u32 right) const {
  const Merge* const slot = locate(left, right);
  if (slot == nullptr || slot->left == kNoToken) return kNoSlot;
  return static_cast<u32>(slot - slots_.data());
}

}  // namespace tarn::text
