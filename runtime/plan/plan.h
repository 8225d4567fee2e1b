// runtime/plan/plan.h
//
// The memory plan: a pure function from the model's description, the configuration and the device
// to a table of regions. `tarn plan` prints it without loading anything; opening an engine reserves
// exactly it.
//
//   CPU              host regions under one budget
//   integrated GPU   device regions (its own kind of the same memory) and host regions (the shared
//                    kind) under one budget
//   discrete GPU     device regions under the device's budget, host regions under the other
#pragma once

#include <array>
#include <span>

#include "platform/gpu/device.h"
#include "platform/gpu/slabs.h"
#include "runtime/arena/carver.h"
#include "runtime/config/config.h"
#include "runtime/kv/kv_tables.h"
#include "runtime/method/select_layout.h"
#include "runtime/model/model_spec.h"
#include "runtime/plan/gpu_select_shape.h"
#include "runtime/plan/gpu_stream_shape.h"
#include "runtime/plan/tier_shape.h"

namespace tarn::plan {

// The order of the regions in a plan; the engine asks the arena for them by this index.
enum class RegionId : u8 {
  weights,      // tiled matrices, vectors in f32
  kv_groups,    // GroupPool's region, or with a store the frames that groups pass through
  kv_tables,    // kv::KvTables
  activations,  // StepMemory
  attention,    // exec::AttentionMemory; with a GPU partial results and page tables, then with a
                // store gpu_stream's
  logits,  // what the host samples from, the engine's; with a GPU the device's logits and summaries
  tokenizer,
  sessions,        // the engine's
  io_staging,      // the loader's
  text,            // the engine's: ids and scratch of the tokenizer, pieces on their way out
  select_index,    // method::IndexSets
  select_scratch,  // method::SelectScratch
  select_device,   // with a GPU and selection: every session's index that it chooses by
  select_gather,   // likewise: scratch of the choice, what was chosen, the step's state
  store,           // with a store: kv::TierStoreMemory, then reuse::SaveMemory
  kv_cache,   // with a store and selection: a kv::SlotCache of every session and head, then theirs
  kv_device,  // with a store and a discrete GPU: chunks of KV that stay in its memory
  kv_disk,    // with a store: its file
  mirror,     // with a GPU: what the host writes for a step and reads of it, registered
  driver,     // with a GPU: what its driver may take, measured before READY; a limit, not reserved
  count,
};

struct Plan {
  std::array<Region, static_cast<u64>(RegionId::count)> regions{};
  u64 total_bytes = 0;          // of everything, alignment included
  u64 host_bytes = 0;           // of it, host regions
  u64 device_bytes = 0;         // of it, slabs of device regions, and the driver's limit
  SlabCutter slabs{};           // of the device regions, in GpuMemory's order
  u64 disk_bytes = 0;           // of the store's file; not in total_bytes
  u64 budget_bytes = 0;         // the ceiling over all, or over the host's part; 0: none given
  u64 device_budget_bytes = 0;  // over the device's part, given or its memory; 0: one for both
  bool one_budget = true;       // false with a discrete GPU
  bool fits = true;
  // Sizes that follow from the plan and that the engine uses.
  kv::GroupShape group_shape{};
  kv::KvSizes kv{};
  u32 groups_max = 0;
  u32 context_tokens = 0;  // slots planned for in all, whole pages; also the most of one session
  u32 sessions_max = 0;
  u32 rows_max = 0;  // batch_rows_max, but no more than there are slots
  u32 n_workers = 0;
  u32 logit_rows_max = 0;
  u64 text_bytes_max = 0;  // of one call of the tokenizer
  u32 pages_max = 0;       // of one layer of one session
  method::SelectShape select{};
  GpuSelectShape gpu_select{};
  TierShape tiers{};
  GpuStreamShape gpu_stream{};  // on where there are both a GPU and tiers
  const Region& of(RegionId id) const { return regions[static_cast<u64>(id)]; }
};

inline constexpr u32 kLogitRowsMin = 8;          // evaluation wants many rows, a generation one
inline constexpr u64 kTextBytesATokenMax = 8;    // of context, to bound what one call tokenizes
inline constexpr u64 kPieceBytesMax = 2 * kKiB;  // of one token
inline constexpr u64 kShownBytesMax = 3 * (kPieceBytesMax + 4) + 256;  // what a token can show

// What the engine takes of a region that is its own. The plan counts by the function that places.
using CarveFn = void (*)(RegionId region, const Plan& plan, const model::ModelSpec& spec,
                         Carver& carver);

struct Inputs {
  const model::ModelDescription* model = nullptr;
  const Config* config = nullptr;
  DeviceFacts device{};
  u64 tokenizer_bytes = 0;  // text::Tokenizer::memory_bytes
  u32 n_workers = 1;
  store::Cut store_cut{};   // of the file with kept sessions; 0: there is none
  CarveFn carve = nullptr;  // nullptr: the engine takes nothing
};

// The part of a plan that passes its budget, or, where none does, the one that a budget is for.
struct BudgetedPart {
  u64 bytes = 0;
  u64 budget_bytes = 0;    // 0: none given
  bool on_device = false;  // of a discrete GPU
  bool fits() const { return budget_bytes == 0 || bytes <= budget_bytes; }
};
BudgetedPart tightest_part(const Plan& plan);

// Does not fail for the budget: it sets `fits`. Fails with invalid_config where configuration and
// model do not go together.
Result<Plan> plan_memory(const Inputs& inputs);

// The error for a plan that does not fit; status over_budget. Its detail names the largest regions;
// hint and figures say what to lower and the largest value that fits, found by planning again.
Error over_budget_error(const Plan& plan, const Inputs& inputs);

}  // namespace tarn::plan
