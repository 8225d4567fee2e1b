#include "runtime/text/text_index.h"

#include <algorithm>
#include <cstring>

#include "runtime/text/vocab_limits.h"

namespace tarn::text {
namespace {

// splitmix64's finaliser (Steele, Lea, Flood 2014): every input bit changes every output bit.
u64 mix(u64 z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

u64 load(const char* bytes, u64 n_bytes) {
  u64 word = 0;
  std::memcpy(&word, bytes, n_bytes);
  return word;
}

u64 pair_hash(u32 left, u32 right) { return mix(u64{left} << 32 | right); }

// Maps the high half of a hash to a place below n, without a division.
u64 place(u64 hash, u64 n) { return (hash >> 32) * n >> 32; }

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
    return mix(state ^ load(bytes + n - 8, 8));
  }
  if (n >= 4) return mix(state ^ (load(bytes, 4) << 32 | load(bytes + n - 4, 4)));
  for (u64 at = 0; at < n; ++at) state ^= static_cast<u64>(static_cast<u8>(bytes[at])) << 8 * at;
  return mix(state);
}

TextIndex::TextIndex(const TextTable& texts, std::span<u64> slots) : texts_(texts), slots_(slots) {
  std::fill(slots_.begin(), slots_.end(), u64{0});
}

Insertion TextIndex::insert(u32 id, u64 key) {
  const std::string_view text = texts_.at(id);
  u64 slot = place(key, slots_.size());
  for (u32 n_probes = 0; n_probes < VocabLimits::kProbesMax; ++n_probes) {
    const u64 entry = slots_[slot];
    if (entry == 0) {
      slots_[slot] = (key & kLowHalf) << 32 | (u64{id} + 1);
      return Insertion::done;
    }
    if (entry >> 32 == (key & kLowHalf) && texts_.at(static_cast<u32>(entry) - 1) == text) {
      return Insertion::repeated;
    }
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  return Insertion::crowded;
}

void TextIndex::prefetch_slot(u64 hash) const {
  __builtin_prefetch(&slots_[place(hash, slots_.size())]);
}

void TextIndex::prefetch_text(u64 hash) const {
  const u64 entry = slots_[place(hash, slots_.size())];
  if (entry != 0) __builtin_prefetch(texts_.at(static_cast<u32>(entry) - 1).data());
}

TokenId TextIndex::find(std::string_view text, u64 key) const {
  u64 slot = place(key, slots_.size());
  for (u32 n_probes = 0; n_probes < VocabLimits::kProbesMax; ++n_probes) {
    const u64 entry = slots_[slot];
    if (entry == 0) break;
    const u32 id = static_cast<u32>(entry) - 1;
    if (entry >> 32 == (key & kLowHalf) && texts_.at(id) == text) return id;
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  return kNoToken;
}

MergeIndex::MergeIndex(std::span<Merge> slots) : slots_(slots) {
  std::fill(slots_.begin(), slots_.end(), Merge{});
}

Insertion MergeIndex::insert(const Merge& merge) {
  u64 slot = place(pair_hash(merge.left, merge.right), slots_.size());
  for (u32 n_probes = 0; n_probes < VocabLimits::kProbesMax; ++n_probes) {
    Merge& entry = slots_[slot];
    if (entry.left == kNoToken) {
      entry = merge;
      return Insertion::done;
    }
    if (entry.left == merge.left && entry.right == merge.right) return Insertion::repeated;
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  return Insertion::crowded;
}

void MergeIndex::prefetch(u32 left, u32 right) const {
  __builtin_prefetch(&slots_[place(pair_hash(left, right), slots_.size())]);
}

u32 MergeIndex::find(u32 left, u32 right) const {
  u64 slot = place(pair_hash(left, right), slots_.size());
  for (u32 n_probes = 0; n_probes < VocabLimits::kProbesMax; ++n_probes) {
    const Merge& entry = slots_[slot];
    if (entry.left == kNoToken) break;
    if (entry.left == left && entry.right == right) return static_cast<u32>(slot);
    slot = slot + 1 == slots_.size() ? 0 : slot + 1;
  }
  return kNoSlot;
}

}  // namespace tarn::text
