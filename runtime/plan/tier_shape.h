// The needs of KV over memory and disk: how many frames of memory, how many bytes the caches and
// the extents take of the rest, and how the store's file is cut. Where sessions are kept, the file
// that is there keeps its frames, and a quota below its size is refused: it has the only copy of
// them.
#pragma once

#include "platform/base/checked.h"
#include "runtime/config/config.h"
#include "runtime/kv/extents.h"
#include "runtime/kv/group_pool.h"
#include "runtime/model/model_spec.h"
#include "runtime/reuse/save_memory.h"
#include "runtime/store/store.h"

namespace tarn::plan {

struct Inputs;
struct Plan;

struct TierShape {
  u32 n_frames = 0;     // 0: every group has its place in memory
  u32 cache_slots = 0;  // of a head: what it chose, kept for the steps to come
  u64 cache_bytes = 0;  // of all heads and sessions
  u64 cache_head_bytes = 0;
  kv::ExtentShape extents{};  // of what selection reads; its memory lies behind the caches
  u64 extents_bytes = 0;      // theirs, the counters and the queries
  u32 pin_set_groups = 0;     // that attention takes at a time
  store::StoreLimits store{};
  reuse::SaveSizes saves{};  // where the store keeps sessions
  u64 disk_bytes = 0;
  bool is_on() const { return n_frames > 0; }
};

// Frames that the steps of a plan of these sizes need at least.
u32 tier_frames_least(const Inputs& inputs, const Plan& plan);
// Frames with which nothing is ever spilled.
u32 tier_frames_for_all(const Inputs& inputs, const Plan& plan);
// `n_frames` of memory: with selection those that no step needs become a cache of chosen slots.
Result<TierShape> tier_shape(const Inputs& inputs, const Plan& plan, u32 n_frames);

inline constexpr u32 kTierMovesMax = 48;      // in each direction
inline constexpr u32 kTierIoInFlight = 128;   // requests of the store
inline constexpr u32 kTierPinSetGroups = 16;  // where there are frames enough

}  // namespace tarn::plan
