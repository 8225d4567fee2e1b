#include <algorithm>
#include <array>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/config/fixed_text.h"
#include "runtime/plan/plan.h"

namespace tarn::plan {
namespace {

Result<Plan> plan_of(Inputs inputs, const Config& config) {
  inputs.config = &config;
  return plan_memory(inputs);
}

bool fits(const Inputs& inputs, const Config& config) {
  const Result<Plan> plan = plan_of(inputs, config);
  return plan.has_value() && plan->fits;
}

// The largest value in [0, end) for which `holds`, which holds up to some value and not beyond; 0
// if there is none above.
template <class Holds>
u32 largest(u32 end, Holds&& holds) {
  u32 good = 0, bad = end;
  while (bad - good > 1) {
    const u32 middle = good + (bad - good) / 2;
    (holds(middle) ? good : bad) = middle;
  }
  return good;
}

// In tokens, whole pages, below what `plan` has; 0 if not even a page fits.
u32 largest_context(const Inputs& inputs, const Plan& plan, Config config) {
  return config.page_tokens * largest(plan.pages_max + 1, [&](u32 n_pages) {
           config.context_tokens = u64{n_pages} * config.page_tokens;
           return fits(inputs, config);
         });
}

// Below rows_end; 0 if no number of rows that serves all sessions fits.
u32 largest_batch(const Inputs& inputs, u32 rows_end, Config config) {
  const u32 rows = largest(rows_end, [&](u32 n_rows) {
    config.batch_rows_max = std::max(n_rows, config.sessions_max);
    return fits(inputs, config);
  });
  return rows >= config.sessions_max ? rows : 0;
}

// Returns the tightest part of the smallest plan there is.
BudgetedPart least_part(const Inputs& inputs) {
  Config config = *inputs.config;
  config.context_tokens = config.page_tokens;
  config.sessions_max = 1;
  config.batch_rows_max = 1;
  const Result<Plan> plan = plan_of(inputs, config);
  TARN_ASSERT(plan.has_value());
  return tightest_part(*plan);
}

// For a budget that holds no page of context as configured: one session, and as many rows as let a
// page in; then as much context as still fits.
void propose_least(const Inputs& inputs, const Plan& plan, Error* error) {
  const BudgetedPart least = least_part(inputs);
  if (!least.fits()) {
    error->hint =
        "the plan wants {0} bytes, the budget is {1}, and not even the shortest context fits: "
        "raise "
        "it to {2} or more, or take a model with smaller weights";
    error->figures[2] = {"least_bytes", least.bytes};
    return;
  }
  Config config = *inputs.config;
  config.sessions_max = 1;
  config.context_tokens = config.page_tokens;
  if (!fits(inputs, config)) {
    config.batch_rows_max =
        largest_batch(inputs, std::min(plan.rows_max, config.page_tokens), config);
  }
  error->hint =
      "the plan wants {0} bytes, the budget is {1} and holds one session: set engine.sessions_max "
      "to 1, -c (kv.context_tokens) to {2} and engine.batch_rows_max to {3}, or raise the budget";
  error->figures[2] = {"context_tokens", largest_context(inputs, plan, config)};
  error->figures[3] = {"batch_rows_max", config.batch_rows_max};
}

// With a store, KV beyond memory lies on a disk.
bool store_would_fit(const Inputs& inputs) {
  Config config = *inputs.config;
  if (!config.store.is_off()) return false;
  config.store.path[0] = '.';
  config.store.quota_bytes = kStoreBytesMax;
  return fits(inputs, config);
}

// Says what to lower, without and with a store that would help.
constexpr const char* kLowerRows[] = {
    "the plan wants {0} bytes, the budget is {1}: lower -c (kv.context_tokens) to {2} or "
    "engine.batch_rows_max to {3}, or raise the budget",
    "the plan wants {0} bytes, the budget is {1}: give a folder on a disk for KV beyond memory "
    "(--store DIR, store.path), lower -c (kv.context_tokens) to {2} or engine.batch_rows_max to "
    "{3}, or raise the budget"};
constexpr const char* kLowerType[] = {
    "the plan wants {0} bytes, the budget is {1}: lower -c (kv.context_tokens) to {2}, or to {3} "
    "together with --kv-type q8_0, or raise the budget",
    "the plan wants {0} bytes, the budget is {1}: give a folder on a disk for KV beyond memory "
    "(--store DIR, store.path), lower -c (kv.context_tokens) to {2}, or to {3} together with "
    "--kv-type q8_0, or raise the budget"};
constexpr const char* kLowerContext[] = {
    "the plan wants {0} bytes, the budget is {1}: lower -c (kv.context_tokens) to {2}, or raise "
    "the budget",
    "the plan wants {0} bytes, the budget is {1}: give a folder on a disk for KV beyond memory "
    "(--store DIR, store.path), lower -c (kv.context_tokens) to {2}, or raise the budget"};

Detail largest_regions(const Plan& plan) {
  auto regions = plan.regions;
  // Bytes on disk are in no budget of memory.
  std::ranges::sort(regions, std::ranges::greater{}, [](const Region& region) {
    return region.space == RegionSpace::disk ? 0 : region.bytes;
  });
  FixedText<sizeof(Detail)> text;
  for (u32 i = 0; i < 3; ++i) {
    text << (i == 0 ? "" : ", ") << regions[i].name << " " << ceil_div(regions[i].bytes, kMiB)
         << " MiB";
  }
  return Detail(text.view());
}

}  // namespace

Error over_budget_error(const Plan& plan, const Inputs& inputs) {
  TARN_ASSERT(!plan.fits);
  const BudgetedPart part = tightest_part(plan);
  Error error{
      .status = Status::over_budget,
      .detail = largest_regions(plan),
      .figures = {{{part.on_device ? "device_bytes" : "total_bytes", part.bytes},
                   {part.on_device ? "device_budget_bytes" : "budget_bytes", part.budget_bytes}}}};
  Config config = *inputs.config;

  const u32 context = largest_context(inputs, plan, config);
  if (context == 0) {
    propose_least(inputs, plan, &error);
    return error;
  }
  error.figures[2] = {"context_tokens", context};
  const u32 batch = largest_batch(inputs, plan.rows_max, config);
  const bool with_store = store_would_fit(inputs);
  config.kv_type = KvTypeChoice::q8_0;
  const u32 context_q8_0 = largest_context(inputs, plan, config);
  if (batch > 0) {
    error.hint = kLowerRows[with_store];
    error.figures[3] = {"batch_rows_max", batch};
  } else if (context_q8_0 > context) {
    error.hint = kLowerType[with_store];
    error.figures[3] = {"context_tokens_q8_0", context_q8_0};
  } else {
    error.hint = kLowerContext[with_store];
  }
  return error;
}

}  // namespace tarn::plan
