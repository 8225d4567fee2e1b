#include "runtime/arena/arena.h"

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn {
namespace {

constexpr u64 kRegionAlignment = 4096;

}  // namespace

const char* region_space_name(RegionSpace space) {
  switch (space) {
    case RegionSpace::device:
      return "device";
    case RegionSpace::host:
      return "host";
    case RegionSpace::disk:
      return "disk";
  }
  return "unknown";
}

const char* region_kind_name(RegionKind kind) {
  switch (kind) {
    case RegionKind::weights:
      return "weights";
    case RegionKind::kv:
      return "kv";
    case RegionKind::codes:
      return "codes";
    case RegionKind::scratch:
      return "scratch";
    case RegionKind::heap:
      return "heap";
    case RegionKind::io:
      return "io";
    case RegionKind::driver:
      return "driver";
    case RegionKind::other:
      return "other";
  }
  return "unknown";
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

Result<void> RegionArena::build(const Args& args) {
  TARN_ASSERT(!sealed_);
  TARN_ASSERT(n_regions_ == 0);
  TARN_ASSERT(args.reserve != nullptr);
  TARN_ASSERT(args.regions.size() <= kRegionsMax);

  const u64 bytes_wanted = total_bytes(args.regions);
  if (bytes_wanted > 0) {
    TARN_TRY(const ReserveOutcome outcome, args.reserve->reserve({.name = "arena",
                                                                  .bytes = bytes_wanted,
                                                                  .touch = true,
                                                                  .huge_pages = args.huge_pages,
                                                                  .for_device = args.for_device,
                                                                  .lock = args.lock}));
    TARN_ASSERT(outcome.bytes.size() >= bytes_wanted);
    bytes_ = outcome.bytes;
    locked_ = outcome.locked;
  }
  reserve_ = args.reserve;
  u64 offset = 0;
  for (const Region& region : args.regions) {
    const u64 bytes = region.space == RegionSpace::host ? region.bytes : 0;
    offsets_[n_regions_] = offset;
    lengths_[n_regions_] = bytes;
    handed_out_[n_regions_] = false;
    ++n_regions_;
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
  return bytes_.subspan(offsets_[region_idx], lengths_[region_idx]);
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
