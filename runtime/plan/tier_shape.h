// What KV over memory and disk needs: how many frames of memory, how the store's file is cut, and
// the memory of what moves groups between them. The planner reserves it, kv::KvCache cuts
// it at the same places. Where sessions are kept, the file that is there keeps its frames and is
// never made shorter than the quota demands: what lies in it has no other copy.
#pragma once

#include "platform/base/checked.h"
#include "runtime/config/config.h"
#include "runtime/kv/extents.h"
#include "runtime/kv/group_pool.h"
#include "runtime/model/model_spec.h"
#include "runtime/reuse/save_memory.h"
#include "runtime/store/store.h"

namespace tarn::plan {

struct TierShape {
  u32 n_frames = 0;         // 0: every group has its place in memory
  u32 n_frames_in_all = 0;  // with those that became a cache
  u32 cache_slots = 0;      // of a head: what it chose, kept for the steps to come
  u64 cache_bytes = 0;      // of all heads and sessions
  u64 cache_head_bytes = 0;
  kv::ExtentShape extents{};  // of what selection reads; its memory lies behind the caches
  u64 extents_bytes = 0;      // theirs, the counters and the queries
  u32 window_groups = 0;      // that attention takes at a time
  store::StoreLimits store{};
  reuse::SaveSizes saves{};  // where the store keeps sessions
  u64 disk_bytes = 0;
  bool is_on() const { return n_frames > 0; }
};

struct TierInputs {
  kv::GroupShape group_shape{};
  u32 groups_max = 0;
  u32 sessions_max = 0;
  u32 rows_max = 0;
  u32 n_pairs = 0;         // of codes, where selection chooses by them; 0: there are no extents
  u64 codebook_bytes = 0;  // of a head's record of kind codebook, of the whole context
  u32 n_chosen_max = 0;    // slots that a head attends to by selection; 0: it attends to all
  u32 cache_tokens = 0;    // of them that it keeps at most; 0: what there is room for
  u32 context_tokens = 0;
  store::Cut cut{};  // of the file that is there; 0: there is none
};

// Frames that the steps of such a plan need at least.
u32 tier_frames_least(const model::ModelSpec& spec, const TierInputs& inputs);
// `n_frames` of memory: with selection those that no step needs become a cache of chosen slots.
Result<TierShape> tier_shape(const model::ModelSpec& spec, const Config& config,
                             const TierInputs& inputs, u32 n_frames);

// Frames with which nothing is ever spilled.
u32 tier_frames_for_all(const model::ModelSpec& spec, const TierInputs& inputs);

inline constexpr u32 kTierMovesMax = 48;      // in each direction
inline constexpr u32 kTierIoInFlight = 128;   // requests of the store
inline constexpr u32 kTierWindowGroups = 16;  // where there are frames enough

}  // namespace tarn::plan
