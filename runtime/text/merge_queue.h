// Joins neighbouring symbols, best pair first, until no pair joins. BPE (lowest rank first) and SPM
// (highest score first) share this loop; pairs with equal keys join from left to right. O(n log n):
// a binary heap of candidates, whose stale entries are skipped when they reach the top.
//
// A symbol is named by its start position. Its length is stored at its first and last position, so
// that both neighbours are found without links (boundary tags, Knuth vol. 1, 2.5). Positions
// between are never read.
//
// Invariant, for every i where a symbol starts: pairs[i] joins it and its right neighbour, or is
// kNoPair. At the start of a symbol that was joined, pairs[i] is kNoPair. An entry (key, i) is live
// if pairs[i] has that key; all live entries are in the heap.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "platform/base/bump.h"
#include "platform/base/types.h"

namespace tarn::text {

inline constexpr u32 kNoPair = ~u32{0};

struct Symbols {
  std::span<u32> ids;     // of the symbol that starts here
  std::span<u32> widths;  // positions of the symbol that starts or ends here
  std::span<u32> pairs;   // see above; Rules define other values
  std::span<u64> heap;    // key << 32 | start, smallest first

  // A quarter more than the number of symbols. When the heap is full, a rebuild drops every stale
  // entry, which frees at least a quarter; so rebuilds cost O(1) an entry.
  static constexpr u64 heap_entries(u64 n_positions) { return n_positions + n_positions / 4 + 8; }
  static constexpr u64 bytes(u64 n_positions) {
    return n_positions * 3 * sizeof(u32) + heap_entries(n_positions) * sizeof(u64) + kSlackBytes;
  }
  static constexpr u64 kSlackBytes = 32;  // for alignment

  static std::optional<Symbols> allocate(Bump& scratch, u64 n_positions) {
    const auto ids = scratch.alloc<u32>(n_positions);
    const auto widths = scratch.alloc<u32>(n_positions);
    const auto pairs = scratch.alloc<u32>(n_positions);
    const auto heap = scratch.alloc<u64>(heap_entries(n_positions));
    if (!ids || !widths || !pairs || !heap) return std::nullopt;
    return Symbols{.ids = *ids, .widths = *widths, .pairs = *pairs, .heap = *heap};
  }

  u32 n_positions() const { return static_cast<u32>(ids.size()); }
  // Puts a symbol of `width` positions at `start`; its neighbours' pairs become stale.
  void put(u32 start, u32 width, u32 id) {
    ids[start] = id;
    widths[start] = width;
    widths[start + width - 1] = width;
  }
  u32 next(u32 start) const { return start + widths[start]; }
};

// Rules has
//   u32 pair(const Symbols&, u32 left, u32 right)   what joins the two symbols, or kNoPair
//   u32 key(u32 pair)                               small is joined first
//   u32 result(u32 pair)                            the id of the joined symbol
template <class Rules>
class MergeQueue {
 public:
  // The symbols must be put, without gaps, up to n_positions().
  MergeQueue(const Rules& rules, Symbols& symbols) : rules_(rules), symbols_(symbols) {}

  void run() {
    for (u32 at = 0; at < symbols_.n_positions(); at = symbols_.next(at)) find_pair(at);
    rebuild();
    while (n_entries_ > 0) {
      std::pop_heap(begin(), end(), Later());
      const u64 entry = symbols_.heap[--n_entries_];
      const u32 left = static_cast<u32>(entry);
      const u32 pair = symbols_.pairs[left];
      if (pair != kNoPair && rules_.key(pair) == entry >> 32) join(left, rules_.result(pair));
    }
  }

 private:
  struct Later {  // the heap's order: its top is the smallest entry
    bool operator()(u64 a, u64 b) const { return a > b; }
  };

  auto begin() { return symbols_.heap.begin(); }
  auto end() { return symbols_.heap.begin() + static_cast<std::ptrdiff_t>(n_entries_); }
  u64 entry(u32 left) const { return u64{rules_.key(symbols_.pairs[left])} << 32 | left; }

  void find_pair(u32 left) {
    const u32 right = symbols_.next(left);
    symbols_.pairs[left] =
        right < symbols_.n_positions() ? rules_.pair(symbols_, left, right) : kNoPair;
  }

  void join(u32 left, u32 id) {
    const u32 right = symbols_.next(left);
    symbols_.pairs[right] = kNoPair;
    symbols_.put(left, symbols_.widths[left] + symbols_.widths[right], id);
    if (left > 0) offer(left - symbols_.widths[left - 1]);
    offer(left);
  }

  void offer(u32 left) {
    find_pair(left);
    if (symbols_.pairs[left] == kNoPair) return;
    if (n_entries_ == symbols_.heap.size()) {
      rebuild();  // which includes this pair
      return;
    }
    symbols_.heap[n_entries_++] = entry(left);
    std::push_heap(begin(), end(), Later());
  }

  // Fills the heap with the live entries, one for each pair.
  void rebuild() {
    n_entries_ = 0;
    for (u32 at = 0; at < symbols_.n_positions(); at = symbols_.next(at)) {
      if (symbols_.pairs[at] != kNoPair) symbols_.heap[n_entries_++] = entry(at);
    }
    std::make_heap(begin(), end(), Later());
  }

  const Rules& rules_;
  Symbols& symbols_;
  u64 n_entries_ = 0;
};

}  // namespace tarn::text
