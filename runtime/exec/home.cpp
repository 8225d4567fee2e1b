#include "runtime/exec/home.h"

#include <algorithm>

namespace tarn::exec {

BoxConfig without_disk(const BoxConfig& box) {
  BoxConfig out = box;
  out.disk_request_ns = out.disk_byte_fs = 0;
  return out;
}

Result<void> HostHome::reserve(const ProcessorArgs& args, const model::ModelDescription& model) {
  groups_ = args.regions.groups;
  return cpu_.reserve(args, model, 0);
}

Result<void> HostHome::open_kv(kv::KvCache& kv, const kv::KvArgs& args, Carver&,
                               const kv::TierArgs&) {
  kv.init(args);
  kv.pool().lie_in(groups_);
  return {};
}

Result<void> DeviceHome::reserve(const ProcessorArgs& args, const model::ModelDescription& model) {
  return gpu_.reserve(args, model, args.groups_max);
}

Result<void> DeviceHome::open_kv(kv::KvCache& kv, const kv::KvArgs& args, Carver&,
                                 const kv::TierArgs&) {
  kv.init(args);
  kv.pool().lie_in(&gpu_.memory());
  return {};
}

Result<void> TierHome::reserve(const ProcessorArgs& args, const model::ModelDescription& model) {
  frames_ = args.regions.groups;
  log_ = args.log;
  TARN_CHECK(processor_.reserve(args, model, 0));
  return processor_.reach_frames(frames_, args.regions.gathered);
}

Result<void> TierHome::open_kv(kv::KvCache& kv, const kv::KvArgs& args, Carver& store,
                               const kv::TierArgs& tiers) {
  kv.init(args);
  kv::TierArgs placed = tiers;
  placed.frames = frames_;
  placed.store.memory = kv::TierStoreMemory::carve(store, tiers.store.limits);
  TARN_CHECK(kv.open_tiers(placed));
  kv.tiers().store.log_state();
  if (tiers.store.limits.keeps) kv.tiers().store.log_lost_records();
  const u32 n_groups = args.sizes.groups_max;  // fewer than frames where sessions are kept
  log_.info("kv: memory has room for %u of %u groups, and disk for all in %s",
            std::min(args.sizes.n_frames, n_groups), n_groups, tiers.store.folder);
  return {};
}

void Homes::choose(bool has_gpu, u32 n_frames) {
  Home* const homes[2][2] = {{&host_, &tiers_}, {&device_, &tiers_by_gpu_}};
  home_ = homes[has_gpu][n_frames > 0];
}

bool Homes::may_try_again() {
  const bool may = gpu_.registration_refused();
  gpu_.pin_arena(may);
  return may;
}

void Homes::close() {
  processor().close();
  home_ = &host_;
}

}  // namespace tarn::exec
