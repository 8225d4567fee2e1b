// runtime/arena/arena.h
//
// The sealed reservation: every byte the engine will ever use, cut into the regions of the plan.
//
//   building   region() hands out each region once, by index
//   sealed     reserving or handing out is an assertion
//   torn down  everything is given back, or left; the arena may be built again
//
//   thread     the thread that builds and tears down
//   when full  cannot be: the regions are the plan's, and build() fails as a whole
//
// Invariant: the host regions lie one behind the other in one reservation, each at a multiple of
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
  std::array<char, 256> formula{};  // how `bytes` came about, with its numbers
};

inline constexpr u32 kRegionsMax = 32;

class RegionArena {
 public:
  RegionArena() = default;
  RegionArena(const RegionArena&) = delete;
  RegionArena& operator=(const RegionArena&) = delete;
  ~RegionArena();

  struct Args {
    std::span<const Region> regions;
    Reserve* reserve = nullptr;
    LockMode lock = LockMode::off;
    bool huge_pages = true;
    bool for_device = false;  // ReserveArgs has both
  };
  // Of the host regions, with the alignment between them. Their sum fits in a u64: the plan checked
  // it.
  static u64 total_bytes(std::span<const Region> regions);
  // Reserves total_bytes() in one piece, or fails having reserved nothing. The error is the
  // reserve's.
  Result<void> build(const Args& args);
  // All of it, before any region is handed out; to be left as it is.
  std::span<std::byte> whole();
  std::span<std::byte> region(u32 region_idx);  // exactly Region::bytes long, zeroed
  void seal();
  bool sealed() const { return sealed_; }
  bool locked() const { return locked_; }
  void tear_down();
  // The bytes stay reserved for as long as the process lives: somebody may still write to them.
  // The arena is as after tear_down().
  void leave();

 private:
  Reserve* reserve_ = nullptr;
  std::span<std::byte> bytes_{};
  std::array<u64, kRegionsMax> offsets_{};
  std::array<u64, kRegionsMax> lengths_{};
  std::array<bool, kRegionsMax> handed_out_{};
  u32 n_regions_ = 0;
  bool sealed_ = false;
  bool locked_ = false;
};

}  // namespace tarn
