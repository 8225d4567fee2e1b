// The sealed reservation: every byte that the engine will ever use, cut into the plan's regions.
//
//   building   region() hands out each region once, by index
//   sealed     build() and region() assert
//   torn down  everything is released, or left; the arena may be built again
//
//   thread     the thread that builds and tears down
//   when full  cannot happen: the regions are the plan's, and build() fails as a whole
//
// Invariant: the host regions are consecutive in one reservation, each at a multiple of
//            4 KiB; regions of other spaces have no bytes here.
#pragma once

#include <array>
#include <span>

#include "platform/base/result.h"
#include "platform/base/types.h"
#include "platform/mem/reserve.h"

namespace tarn {

enum class RegionSpace : u8 { device, host, disk };
enum class RegionKind : u8 { weights, kv, codes, scratch, heap, io, driver, other };
const char* region_space_name(RegionSpace space);
const char* region_kind_name(RegionKind kind);

struct Region {
  const char* name = "";
  RegionSpace space = RegionSpace::host;
  RegionKind kind = RegionKind::other;
  u64 bytes = 0;                    // as asked; the arena aligns each region to 4 KiB
  std::array<char, 256> formula{};  // how `bytes` is computed, with its numbers
};

inline constexpr u32 kRegionsMax = 32;

class RegionArena {
 public:
  RegionArena() = default;
  RegionArena(const RegionArena&) = delete;
  RegionArena& operator=(const RegionArena&) = delete;
  ~RegionArena();

  struct Reservation {
    std::span<const Region> regions;
    Reserve* reserve = nullptr;
    LockMode lock = LockMode::off;
    bool huge_pages = true;
    bool for_device = false;  // as in ReserveArgs
  };
  // Bytes of the host regions with their alignment. The plan has checked that the sum fits a u64.
  static u64 total_bytes(std::span<const Region> regions);
  // Reserves total_bytes() in one piece, or nothing. The error is the Reserve's, or the driver's.
  Result<void> build(const Reservation& wanted);
  // The whole reservation, before any region is handed out; do not write to it.
  std::span<std::byte> whole();
  std::span<std::byte> region(u32 region_idx);  // exactly Region::bytes long, zeroed
  void seal();
  bool locked() const { return locked_; }
  void tear_down();
  // Leaves the bytes reserved until the process ends, because a disk or a GPU may still write to
  // them. The arena is as after tear_down().
  void leave();

 private:
  Result<void> reserve(const Reservation& wanted, u64 bytes_wanted);

  Reserve* reserve_ = nullptr;
  std::span<std::byte> bytes_{};
  std::array<std::span<std::byte>, kRegionsMax> regions_{};
  std::array<bool, kRegionsMax> handed_out_{};
  u32 n_regions_ = 0;
  bool sealed_ = false;
  bool locked_ = false;
};

}  // namespace tarn
