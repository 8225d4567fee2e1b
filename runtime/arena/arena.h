// runtime/arena/arena.h
//
// The sealed reservation: every byte the engine will ever use, cut into the regions of the plan.
//
//   building   region() hands out each region once, by index
//   sealed     reserving or handing out is an assertion
//   torn down  everything is given back
//
//   thread     the thread that builds and tears down
#pragma once

#include <array>
#include <span>

#include "platform/base/result.h"
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
  u64 bytes = 0;                       // as asked; the arena aligns each region to 4 KiB
  std::array<char, 96> formula{};      // how `bytes` came about, with its numbers
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
  };
  // Reserves the sum of all host regions in one piece, or fails having reserved nothing.
  static u64 total_bytes(std::span<const Region> regions);  // with the alignment between them
  Result<void> build(const Args& args);
  std::span<std::byte> region(u32 region_idx);
  void seal();
  bool sealed() const { return sealed_; }
  bool locked() const { return locked_; }
  void tear_down();

 private:
  Reserve* reserve_ = nullptr;
  std::span<std::byte> bytes_{};
  std::array<u64, kRegionsMax> offsets_{};
  std::array<u64, kRegionsMax> lengths_{};
  u32 n_regions_ = 0;
  bool sealed_ = false;
  bool locked_ = false;
};

}  // namespace tarn
