#include "tools/tarnd/network_memory.h"

#include <event2/event.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <cstring>

namespace tarn::daemon {
namespace {

constexpr size_t kHeadBytes = alignof(std::max_align_t);  // before each block: its size
// Leases leave so much to libevent, so that open connections can end in order.
constexpr u64 kLastBytes = 64 * 1024;

struct Count {
  u64 limit = ~u64{0}, used = 0, peak = 0;

  bool add(u64 bytes, u64 most) {
    if (bytes > most || used > most - bytes) return false;
    used += bytes;
    peak = std::max(peak, used);
    return true;
  }
};
// libevent's allocator has no context argument.
Count& count() {
  static Count one;
  return one;
}

void* counted_malloc(size_t n) {
  if (n > SIZE_MAX - kHeadBytes || !count().add(n + kHeadBytes, count().limit)) return nullptr;
  auto* const block = static_cast<std::byte*>(std::malloc(n + kHeadBytes));
  if (block == nullptr) {
    count().used -= n + kHeadBytes;
    return nullptr;
  }
  std::memcpy(block, &n, sizeof n);
  return block + kHeadBytes;
}

size_t size_of(void* piece) {
  size_t n = 0;
  std::memcpy(&n, static_cast<std::byte*>(piece) - kHeadBytes, sizeof n);
  return n;
}

void counted_free(void* piece) {
  if (piece == nullptr) return;
  count().used -= size_of(piece) + kHeadBytes;
  std::free(static_cast<std::byte*>(piece) - kHeadBytes);
}

void* counted_realloc(void* piece, size_t n) {
  if (piece == nullptr) return counted_malloc(n);
  void* const moved = counted_malloc(n);
  if (moved == nullptr) return nullptr;
  std::memcpy(moved, piece, std::min(n, size_of(piece)));
  counted_free(piece);
  return moved;
}

}  // namespace

void NetworkMemory::install(u64 limit_bytes) {
  static const bool is_set = [] {
    event_set_mem_functions(counted_malloc, counted_realloc, counted_free);
    return true;
  }();
  static_cast<void>(is_set);
  count().limit = limit_bytes;
}

u64 NetworkMemory::limit_bytes() { return count().limit; }
u64 NetworkMemory::used_bytes() { return count().used; }
u64 NetworkMemory::peak_bytes() { return count().peak; }

bool Lease::grow_to(u64 bytes) {
  if (bytes <= bytes_) {
    count().used -= bytes_ - bytes;
  } else {
    const u64 limit = count().limit;
    if (!count().add(bytes - bytes_, limit - std::min(limit, kLastBytes))) return false;
  }
  bytes_ = bytes;
  return true;
}

}  // namespace tarn::daemon
