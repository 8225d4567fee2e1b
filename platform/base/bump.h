// Hands out pieces of one borrowed region, front to back, and takes them back only all at once.
// When the region is exhausted, alloc() returns an empty optional. The caller knows whether that is
// an error (a file beyond its limits) or our bug (a plan that is too small).
#pragma once

#include <optional>
#include <span>
#include <type_traits>

#include "platform/base/checked.h"
#include "platform/base/types.h"

namespace tarn {

class Bump {
 public:
  Bump() = default;
  explicit Bump(std::span<std::byte> region) : region_(region) {}

  std::optional<std::span<std::byte>> alloc_bytes(u64 n_bytes, u64 alignment) {
    const u64 base = reinterpret_cast<std::uintptr_t>(region_.data());
    const auto begin = (Checked(base) + used_bytes_).aligned_up(alignment) - Checked(base);
    const auto end = (begin + Checked(n_bytes)).at_most(region_.size());
    if (!end) return std::nullopt;
    used_bytes_ = *end;
    return region_.subspan(*begin.get(), n_bytes);
  }

  // Allocates n uninitialised T, which must be a plain type.
  template <class T>
  std::optional<std::span<T>> alloc(u64 n) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    const auto n_bytes = (Checked(n) * Checked(sizeof(T))).get();
    if (!n_bytes) return std::nullopt;
    const auto bytes = alloc_bytes(*n_bytes, alignof(T));
    if (!bytes) return std::nullopt;
    return std::span<T>(reinterpret_cast<T*>(bytes->data()), n);
  }

  u64 used_bytes() const { return used_bytes_; }
  u64 free_bytes() const { return region_.size() - used_bytes_; }
  // Frees everything that was allocated after used_bytes() was `mark`.
  void rewind(u64 mark) { used_bytes_ = mark < used_bytes_ ? mark : used_bytes_; }

 private:
  std::span<std::byte> region_{};
  u64 used_bytes_ = 0;
};

}  // namespace tarn
