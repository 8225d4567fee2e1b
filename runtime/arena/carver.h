// One description of memory, run twice. A part describes its memory once, in a function of a
// Carver:
//
//   static Parts carve(Carver& carver, const Shape& shape) {
//     return {.keys = carver.take<u32>("keys", shape.n_keys), ...};
//   }
//
// Without a region the Carver counts: every span is empty, n_bytes() is the size that the plan
// reserves, and formula() names the pieces. Over a region of that size it carves.
//
//   alignment   each piece begins at a multiple of 64 bytes, a cache line and the widest vector, or
//               of a given alignment; the region begins at a multiple of 4 KiB
//   when full   while it counts, a size beyond 64 bits makes n_bytes() invalid; while it carves, a
//               piece that does not fit is an assertion, because counting was different
#pragma once

#include <span>
#include <string_view>

#include "platform/base/checked.h"
#include "runtime/arena/arena.h"
#include "runtime/config/fixed_text.h"

namespace tarn {

class Carver {
 public:
  static constexpr u64 kAlignment = 64;

  Carver() = default;  // counts
  explicit Carver(std::span<std::byte> region) : region_(region), carves_(true) {}

  // Takes n uninitialised elements.
  template <class T>
  std::span<T> take(const char* name, Checked n, u64 alignment = kAlignment) {
    return rows<T>(name, 1, n, alignment);
  }
  // Takes [n_rows, n] elements. The formula groups neighbouring arrays with the same n_rows.
  template <class T>
  std::span<T> rows(const char* name, u64 n_rows, Checked n, u64 alignment = kAlignment) {
    static_assert(alignof(T) <= kAlignment);
    constexpr u64 kElemBytes = sizeof(T);  // NOLINT(bugprone-sizeof-expression): of pointers, too
    const std::span<std::byte> bytes = piece(name, n_rows, n * kElemBytes, alignment);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / kElemBytes};
  }

  // Row `i` of an array that rows() returned.
  template <class T>
  static std::span<T> row(std::span<T> all, u64 n_rows, u64 i) {
    const u64 n = all.size() / n_rows;
    return all.subspan(i * n, n);
  }

  bool carves() const { return carves_; }
  u64 n_rows() const { return n_rows_; }  // of what was taken last
  Checked n_bytes() const { return end_; }
  // The pieces by name: "512 x (x 16384 + gate 57344) + table 512 B". Pieces that the text has no
  // room for are summed up as "others".
  FixedText<sizeof(Region::formula)> formula() const;

 private:
  static constexpr u64 kEndBytes = 40;  // of the formula, reserved for the others

  std::span<std::byte> piece(const char* name, u64 n_rows, Checked row_bytes, u64 alignment);
  void note(const char* name, u64 n_rows, u64 row_bytes);

  std::span<std::byte> region_{};
  bool carves_ = false;
  Checked end_ = 0;
  FixedText<sizeof(Region::formula)> text_{};
  u64 n_rows_ = 0;        // of the last term; 0: there is none
  u64 others_bytes_ = 0;  // that the text has no room for
};

}  // namespace tarn
