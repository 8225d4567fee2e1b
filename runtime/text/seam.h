// Encodes in parts a run that cut.h cannot cut, since tokens lie over every place of it.
//
// Greedy merging is local: a sequence of symbols is what a text merges to, exactly if each two
// neighbours are what their own text merges to. (The first merge over a border of the sequence
// would happen in the text of the two symbols alone, too; without one, each symbol's text merges by
// itself. Any ranks or scores will do.) So a part may end behind any symbol, if that one and the
// first symbol of the next part stay apart: the ids are those of the whole run.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "platform/base/assert.h"
#include "runtime/text/cut.h"
#include "runtime/text/merge_queue.h"
#include "runtime/text/tables.h"

namespace tarn::text {

// The last symbol of a part, until the next part has begun with another. each_byte(visit) is as for
// first_piece().
class Seam {
 public:
  bool is_open() const { return n_bytes_ > 0; }

  // Remembers the prepared bytes from `begin` to `end` of a piece.
  template <class EachByte>
  void open(u64 begin, u64 end, const EachByte& each_byte) {
    TARN_ASSERT(end - begin <= VocabLimits::kTokenBytesMax);
    n_bytes_ = 0;
    append(begin, end, each_byte);
  }

  // Returns whether a piece may follow whose first symbol ends at `end`. merge(text, symbols) puts
  // the symbols of a prepared text and joins them.
  template <class EachByte, class Merge>
  bool close(u64 end, Bump& scratch, const EachByte& each_byte, const Merge& merge) {
    TARN_ASSERT(end <= VocabLimits::kTokenBytesMax);
    const u64 n_last = n_bytes_, mark = scratch.used_bytes();
    append(0, end, each_byte);
    auto symbols = Symbols::allocate(scratch, n_bytes_);
    bool are_apart = false;
    if (symbols) {
      merge(std::string_view(bytes_.data(), n_bytes_), *symbols);
      are_apart = symbols->widths[0] == n_last &&
                  symbols->next(symbols->widths[0]) == symbols->n_positions();
    }
    scratch.rewind(mark);
    n_bytes_ = 0;
    return are_apart;
  }

 private:
  template <class EachByte>
  void append(u64 begin, u64 end, const EachByte& each_byte) {
    u64 at = 0;
    each_byte([&](char byte, u64) {
      if (at >= begin) bytes_[n_bytes_++] = byte;
      return ++at < end;
    });
  }

  std::array<char, 2 * VocabLimits::kTokenBytesMax> bytes_{};
  u64 n_bytes_ = 0;
};

// The part taken of a piece, in prepared bytes and in those of its text, and where its last symbol
// begins.
struct Taken {
  u64 prepared = 0, in_text = 0;
  u64 last_symbol = 0;
};

// A part ends behind the first symbol that ends in the piece's second half and where a piece may
// begin. Where there is none, nothing is taken.
template <class EachByte>
Taken part_of(const Symbols& symbols, const EachByte& each_byte) {
  Taken taken;
  u32 last = 0, next = symbols.next(0);
  u64 at = 0;
  each_byte([&](char, u64 begin) {
    if (at == next) {
      if (2 * at >= symbols.n_positions() && begin != kInside) {
        taken = {.prepared = at, .in_text = begin, .last_symbol = last};
        return false;
      }
      last = next;
      if (next < symbols.n_positions()) next = symbols.next(next);
    }
    return ++at < symbols.n_positions();
  });
  return taken;
}

// The bytes of a text's longest beginning with at most bytes_max prepared bytes.
template <class EachByte>
u64 window_bytes(u64 bytes_max, const EachByte& each_byte) {
  u64 at = 0, end = 0;
  each_byte([&](char, u64 begin) {
    if (begin != kInside) end = begin;
    return ++at <= bytes_max;
  });
  return end;
}

}  // namespace tarn::text
