#include "runtime/arena/arena.h"

#include <cstring>

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn {
namespace {

constexpr u64 kRegionAlignment = 4096;

}  // namespace

const char* region_space_name(RegionSpace space) {
  constexpr const char* kNames[] = {"device", "host", "disk"};
  return kNames[static_cast<u32>(space)];
}

const char* region_kind_name(RegionKind kind) {
  constexpr const char* kNames[] = {"weights", "kv", "codes",  "scratch",
                                    "heap",    "io", "driver", "other"};
  return kNames[static_cast<u32>(kind)];
}

RegionArena::~RegionArena() { tear_down(); }

u64 RegionArena::total_bytes(std::span<const Region> regions) {
  Checked total = 0;
  for (const Region& region : regions) {
    if (region.space != RegionSpace::host) continue;
    total = total + Checked(region.bytes).aligned_up(kRegionAlignment);
  }
  TARN_ASSERT(total.valid());
  return *total.get();
}

Result<void> RegionArena::reserve(const Reservation& wanted, u64 bytes_wanted) {
  TARN_TRY(const ReserveOutcome outcome, wanted.reserve->reserve({.name = "arena",
                                                                  .bytes = bytes_wanted,
                                                                  .touch = true,
                                                                  .huge_pages = wanted.huge_pages,
                                                                  .for_device = wanted.for_device,
                                                                  .lock = wanted.lock}));
  TARN_ASSERT(outcome.bytes.size() >= bytes_wanted);
  reserve_ = wanted.reserve;
  bytes_ = outcome.bytes;
  locked_ = outcome.locked;
  return {};
}

Result<void> RegionArena::build(const Reservation& wanted) {
  TARN_ASSERT(!sealed_ && n_regions_ == 0);
  TARN_ASSERT(wanted.reserve != nullptr);
  TARN_ASSERT(wanted.regions.size() <= kRegionsMax);

  if (const u64 bytes_wanted = total_bytes(wanted.regions); bytes_wanted > 0) {
    TARN_CHECK(reserve(wanted, bytes_wanted));
  }
  u64 offset = 0;
  for (const Region& region : wanted.regions) {
    const u64 bytes = region.space == RegionSpace::host ? region.bytes : 0;
    handed_out_[n_regions_] = false;
    regions_[n_regions_++] = bytes_.subspan(offset, bytes);
    offset += align_up(bytes, kRegionAlignment);
  }
  return {};
}

std::span<std::byte> RegionArena::whole() {
  TARN_ASSERT(!sealed_);
  for (u32 i = 0; i < n_regions_; ++i) TARN_ASSERT(!handed_out_[i]);
  return bytes_;
}

std::span<std::byte> RegionArena::region(u32 region_idx) {
  TARN_ASSERT(!sealed_);
  TARN_ASSERT(region_idx < n_regions_);
  TARN_ASSERT(!handed_out_[region_idx]);
  handed_out_[region_idx] = true;
  return regions_[region_idx];
}

void RegionArena::seal() {
  TARN_ASSERT(!sealed_);
  sealed_ = true;
}

void RegionArena::leave() {
  bytes_ = {};
  tear_down();
}

void RegionArena::tear_down() {
  if (!bytes_.empty()) reserve_->release(bytes_);
  reserve_ = nullptr;
  bytes_ = {};
  n_regions_ = 0;
  sealed_ = false;
  locked_ = false;
}

}  // namespace tarn
