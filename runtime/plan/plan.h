// runtime/plan/plan.h
//
// The memory plan: a pure function from the model's description, the configuration and the device to a
// table of regions. `tarn plan` prints it without loading anything; opening an engine reserves exactly it.
#pragma once

#include <array>
#include <span>

#include "platform/gpu/device.h"
#include "runtime/arena/arena.h"
#include "runtime/config/config.h"
#include "runtime/kv/group_pool.h"
#include "runtime/model/model_spec.h"

namespace tarn::plan {

// The order of the regions in a plan; the engine asks the arena for them by this index.
enum class RegionId : u8 {
  weights, kv_groups, kv_tables, activations, attention, logits, tokenizer, sessions, io_staging, directory, count,
};

struct Plan {
  std::array<Region, static_cast<u64>(RegionId::count)> regions{};
  u64 total_bytes = 0;      // what will be reserved, alignment included
  u64 budget_bytes = 0;     // the ceiling it was held against; 0: none given
  bool fits = true;
  // Sizes that follow from the plan and that the engine uses.
  kv::GroupShape group_shape{};
  u32 groups_max = 0;
  u32 context_tokens = 0;   // slots planned for in all, whole pages
  u32 rows_max = 0;
  u32 n_workers = 0;
  const Region& of(RegionId id) const { return regions[static_cast<u64>(id)]; }
};

struct Inputs {
  const model::ModelDescription* model = nullptr;
  const Config* config = nullptr;
  DeviceFacts device{};
  u64 tokenizer_bytes = 0;      // text::Tokenizer::memory_bytes
  u64 directory_bytes = 0;      // what the directory used of its Bump
  u32 n_workers = 1;
};

// over_budget names the largest regions and, in the hint, what to lower; the returned error's figures say
// to which value. plan_memory() alone does not fail for the budget: it sets `fits`.
Result<Plan> plan_memory(const Inputs& inputs);
// The error for a plan that does not fit; status over_budget.
Error over_budget_error(const Plan& plan, const Inputs& inputs);

}  // namespace tarn::plan
