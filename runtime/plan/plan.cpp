#include "runtime/plan/plan.h"

#include <algorithm>

#include "kernels/attn/attn.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/model/kv_type.h"

namespace tarn::plan {
namespace {

constexpr u64 kRegionAlignment = 4096;  // the arena's

RegionSpace space_of(const RegionRow& row, const Plan& plan, u64 n_bytes) {
  if (row.location == Location::driver) return RegionSpace::device;
  if (row.location == Location::disk) return RegionSpace::disk;
  // Frames are the disk's and the host's to reach. A slab has no empty pieces.
  const bool is_host = row.location == Location::host || !plan.has_gpu() || n_bytes == 0 ||
                       (row.id == RegionId::kv_groups && plan.tiers.is_on());
  return is_host ? RegionSpace::host : RegionSpace::device;
}

// The slabs that a region on the device takes; each of its pieces is contiguous there.
void add_slabs(const RegionRow& row, const Inputs& inputs, const Carver& carver, Plan* plan) {
  if (row.id == RegionId::weights) {
    model::each_weight_piece(
        *inputs.model,
        [](void* slabs, Checked piece) { static_cast<SlabCutter*>(slabs)->add(piece); },
        &plan->slabs);
    return;
  }
  const u64 n = row.location == Location::near_in_pieces ? carver.n_rows() : 1;
  plan->slabs.add(carver.n_bytes().get().value_or(0) / n, n);
}

// False where a size passed 64 bits.
bool add_regions(const Inputs& inputs, Plan* plan) {
  if (plan->has_gpu()) plan->slabs = SlabCutter(inputs.device);
  Checked host = 0, driver = 0;
  for (const RegionRow& row : kRegions) {
    Carver carver;
    row.carve(carver, inputs, *plan);
    const u64 n_bytes = carver.n_bytes().get().value_or(0);
    auto formula = carver.formula();
    if (n_bytes == 0 && row.why_none[0] != '\0') formula << ": " << row.why_none;
    Region& region = plan->regions[static_cast<u64>(row.id)];
    region = {.name = row.name,
              .space = space_of(row, *plan, n_bytes),
              .kind = row.kind,
              .bytes = n_bytes,
              .formula = formula.array()};
    if (row.location == Location::driver) {
      driver = carver.n_bytes();
    } else if (region.space == RegionSpace::host) {
      host = host + carver.n_bytes().aligned_up(kRegionAlignment);
    } else if (region.space == RegionSpace::device) {
      add_slabs(row, inputs, carver, plan);
    } else {
      plan->disk_bytes += n_bytes;
    }
  }
  const Checked device = (plan->has_gpu() ? plan->slabs.total_bytes() : Checked(0)) + driver;
  const Checked total = host + device;
  plan->host_bytes = host.get().value_or(0);
  plan->device_bytes = device.get().value_or(0);
  plan->total_bytes = total.get().value_or(0);
  return total.valid();
}

Unexpected refuse(Status status, const char* hint, const char* key, Figure first, Figure second) {
  const Reason reason = status == Status::invalid_config ? Reason::bad_setting : Reason::none;
  return fail({.status = status,
               .reason = reason,
               .key = key,
               .hint = hint,
               .detail = Detail(key),
               .figures = {{first, second}}});
}

bool has_whole_blocks(const model::ModelSpec& spec) { return spec.head_dim % 32 == 0; }

// How KV lies over memory and disk.
struct Tiers {
  u32 n_frames = 0;   // of the host's memory; 0: it is in memory as a whole
  u32 n_stripes = 0;  // stripes in a discrete GPU's
};

// Sets the sizes that the regions are made from.
Result<void> derive_sizes(const Inputs& inputs, const Tiers& tiers, Plan* plan) {
  const u32 n_frames = tiers.n_frames;
  const model::ModelSpec& spec = inputs.model->spec;
  const Config& config = *inputs.config;
  if (config.kv_type != KvTypeChoice::f16 && !has_whole_blocks(spec)) {
    return refuse(
        Status::invalid_config,
        "q8_0 and q4_0 KV need heads of a multiple of 32: use kv.type = \"f16\" (--kv-type f16)",
        "kv.type", {"head_dim", spec.head_dim}, {});
  }
  const SelectConfig& select = config.select;
  if (const auto check = method::method_of(select).check) TARN_CHECK(check(spec, select));
  const u64 asked = config.context_tokens != 0 ? config.context_tokens : spec.n_ctx_train;
  if (asked == 0 || asked > kContextTokensMax) {
    return refuse(
        Status::invalid_config,
        "the model's own context length cannot be planned for: set kv.context_tokens (-c)",
        "kv.context_tokens", {"context_tokens", asked}, {"max", kContextTokensMax});
  }
  plan->pages_max = static_cast<u32>(ceil_div(asked, config.page_tokens));
  plan->context_tokens = plan->pages_max * config.page_tokens;
  plan->sessions_max = config.sessions_max;
  plan->running_max = config.running_max;
  plan->waiting_max = config.waiting_max;
  if (config.reuse.prefix)
    plan->n_blends = std::min({config.blends_max, config.running_max, config.sessions_max});
  plan->token_gap_ns = u64{config.token_gap_ms} * 1'000'000;
  plan->rows_max = std::min(config.batch_rows_max, plan->context_tokens);
  plan->n_workers = inputs.n_workers;
  plan->logit_rows_max = std::max(config.sessions_max, kLogitRowsMin);
  plan->text_scratch_bytes = config.text_scratch_bytes;
  if (inputs.templates_bytes > 0) {
    plan->render_bytes = config.chat_memory_bytes != 0 ? config.chat_memory_bytes
                                                       : render_bytes_auto(plan->context_tokens);
  }
  plan->group_shape = {.n_kv_heads = spec.n_kv_heads,
                       .page_tokens = config.page_tokens,
                       .vector_bytes = static_cast<u32>(
                           kernels::kv_vector_bytes(model::kv_type(config), spec.head_dim))};
  // Every session may hold one group a layer that is not full.
  const auto groups =
      (Checked(spec.n_cache_layers) * (Checked(plan->pages_max) + config.sessions_max))
          .at_most(~u32{0} - 1);
  if (!groups) {
    return refuse(Status::invalid_config, "more KV groups than can be numbered: lower -c",
                  "kv.context_tokens", {"context_tokens", asked}, {});
  }
  plan->groups_max = static_cast<u32>(*groups);
  const bool has_gpu = inputs.device.kind != DeviceKind::cpu;
  const method::KvPlace place = n_frames > 0 ? method::KvPlace::tiers
                                : has_gpu    ? method::KvPlace::gpu
                                             : method::KvPlace::memory;
  plan->select = method::select_shape(spec, select,
                                      {.context_tokens = plan->context_tokens,
                                       .sessions_max = plan->sessions_max,
                                       .n_workers = plan->n_workers,
                                       .group = plan->group_shape,
                                       .kv_type = model::kv_type(config),
                                       .place = place});
  if (has_gpu) {
    plan->gpu = {.rows_max = exec::gpu_step_rows(plan->rows_max),
                 .sessions_max = plan->sessions_max,
                 .context_tokens = plan->context_tokens,
                 .logit_rows_max = plan->logit_rows_max,
                 .group = plan->group_shape,
                 .n_chosen_max = plan->select.n_chosen_max,
                 .attended_max = plan->context_tokens,
                 .n_stripes = tiers.n_stripes,
                 .blends = config.reuse.prefix};
    if (n_frames > 0) {
      plan->gpu.n_staged = 1;
      plan->gpu.n_stripe_groups = kernels::kGpuMergeSlots / config.page_tokens;
      plan->gpu.attended_max = std::min(plan->context_tokens, kernels::kGpuMergeSlots);
    } else if (plan->select.n_chosen_max > 0) {
      plan->gpu.n_choosing = std::min(plan->sessions_max, exec::kGpuAttnRowsMax);
    }
    if (n_frames == 0 && plan->select.codes.exist()) {
      plan->gpu.codes = plan->select.codes;
      plan->gpu.index_bytes = plan->select.n_heads * plan->select.index_bytes;
    }
  }
  if (n_frames > 0) {
    TARN_TRY(plan->tiers, tier_shape(inputs, *plan, n_frames));
  }
  plan->attention = {.n_workers = plan->n_workers,
                     .carried_rows = n_frames > 0 ? plan->rows_max : 0,
                     .page_tokens = config.page_tokens,
                     .pages_max = plan->pages_max};
  plan->kv = {.shape = plan->group_shape,
              .groups_max = plan->groups_max,
              .sessions_max = plan->sessions_max,
              .n_cache_layers = spec.n_cache_layers,
              .context_tokens = plan->context_tokens,
              .n_frames = plan->tiers.n_frames,
              .n_pages = plan->groups_max / spec.n_cache_layers,
              .reuses = config.reuse.prefix};
  return {};
}

// Why KV cannot lie over memory and disk here.
Result<void> check_tiers(const Inputs& inputs, const Plan& whole) {
  const Figure needed{"kv_bytes", whole.of(RegionId::kv_groups).bytes};
  if (inputs.config->store.is_off()) {
    return refuse(
        Status::invalid_config,
        "the context's KV is more than kv.memory_bytes: give a place on disk for the rest "
        "(--store DIR), raise it, or lower -c (kv.context_tokens)",
        "kv.memory_bytes", {"kv_memory_bytes", inputs.config->kv_memory_bytes}, needed);
  }
  const bool is_bounded = whole.one_budget || inputs.config->budget_bytes != 0;
  if (!is_bounded && inputs.config->kv_memory_bytes == 0 && !inputs.config->store.sessions) {
    return refuse(Status::invalid_config,
                  "the context's KV is more than the GPU's memory, and nobody says how much of the "
                  "host's it may take: set kv.memory_bytes or --budget (memory.budget_bytes), or "
                  "lower -c (kv.context_tokens)",
                  "kv.memory_bytes", needed, {});
  }
  if (method::method_of(inputs.config->select).reads_keys) {
    return refuse(Status::unsupported,
                  inputs.config->store.sessions
                      ? "the oracle reads every key of KV in memory alone, and kept sessions have "
                        "theirs in the store: select by another method, or set store.sessions to "
                        "false"
                      : "the oracle reads every key of KV in memory alone: select by another "
                        "method, raise kv.memory_bytes, or lower -c (kv.context_tokens)",
                  "select.method", needed, {});
  }
  return {};
}

// Returns the ceiling of a discrete GPU's own memory, which no key has to say. Where the GPU is
// open, its context has its part of it already.
u64 device_ceiling_bytes(const Inputs& inputs) {
  const u64 wanted = inputs.config->device_budget_bytes;
  const DeviceFacts& device = inputs.device;
  return wanted != 0                     ? wanted
         : device.memory_free_bytes != 0 ? device.memory_free_bytes
                                         : device.memory_bytes;
}

Result<Plan> plan_with(const Inputs& inputs, const Tiers& tiers) {
  TARN_CHECK(model::weights_region_bytes(*inputs.model));
  Plan plan;
  TARN_CHECK(derive_sizes(inputs, tiers, &plan));
  if (!add_regions(inputs, &plan)) {
    return refuse(Status::invalid_model,
                  "the sizes of this model and context pass what a device can hold", "", {}, {});
  }
  TARN_ASSERT(plan.host_bytes == RegionArena::total_bytes(plan.regions));
  plan.one_budget = inputs.device.kind == DeviceKind::cpu || inputs.device.integrated;
  plan.budget_bytes = inputs.config->budget_bytes;
  if (!plan.one_budget) plan.device_budget_bytes = device_ceiling_bytes(inputs);
  plan.fits = tightest_part(plan).fits();
  return plan;
}

// Counts the stripes of contexts that a discrete GPU has room for beside all else: nothing else
// uses that memory. Where both are one memory, frames are as good.
Result<u32> stripes_kept(const Inputs& inputs, u32 n_frames) {
  TARN_TRY(const Plan plan, plan_with(inputs, {n_frames}));
  if (plan.gpu.n_staged == 0 || plan.one_budget) return 0u;
  const u64 unit_bytes = plan.gpu.stripe_bytes() * inputs.model->spec.n_cache_layers;
  // Where no key says how much of it is ours, a tenth is left to others.
  const u64 ceiling = inputs.config->device_budget_bytes != 0
                          ? plan.device_budget_bytes
                          : plan.device_budget_bytes - plan.device_budget_bytes / 10;
  const u64 spare = ceiling - std::min(ceiling, plan.device_bytes);
  const u64 n_stripes_all = plan.pages_max / plan.gpu.stripe_groups();
  auto n_stripes =
      static_cast<u32>(std::min({spare / unit_bytes, n_stripes_all, u64{exec::kGpuStripesMax}}));
  for (; n_stripes > 0; --n_stripes) {  // ends of slabs take something, too
    TARN_TRY(const Plan more, plan_with(inputs, {n_frames, n_stripes}));
    if (more.device_bytes <= ceiling) break;
  }
  return n_stripes;
}

// As many frames as the budget leaves room for. More frames are more of other things too: extents
// need entries in the store's index, and come only from some size on.
Result<Plan> plan_with_frames_that_fit(const Inputs& inputs, u32 n_least, u32 n_most) {
  TARN_TRY(u32 n_stripes, stripes_kept(inputs, n_least));
  TARN_TRY(Plan best, plan_with(inputs, {n_least, n_stripes}));
  if (!best.fits && n_stripes > 0) {  // what says where they lie is the host's
    n_stripes = 0;
    TARN_TRY(best, plan_with(inputs, {n_least}));
  }
  if (!best.fits) return best;
  for (u32 least = n_least + 1, most = n_most; least <= most;) {
    const u32 n_frames = least + (most - least) / 2;
    TARN_TRY(const Plan plan, plan_with(inputs, {n_frames, n_stripes}));
    if (plan.fits) best = plan;
    if (plan.fits) least = n_frames + 1;
    if (!plan.fits) most = n_frames - 1;
  }
  return best;
}

// Plans with frames whose number the configuration asks for.
Result<Plan> plan_with_frames(const Inputs& inputs, u32 n_frames) {
  TARN_TRY(const u32 n_stripes, stripes_kept(inputs, n_frames));
  TARN_TRY(const Plan plan, plan_with(inputs, {n_frames, n_stripes}));
  if (plan.fits || n_stripes == 0) return plan;
  return plan_with(inputs, {n_frames});
}

}  // namespace

BudgetedPart tightest_part(const Plan& plan) {
  if (plan.one_budget) return {plan.total_bytes, plan.budget_bytes};
  const BudgetedPart device{plan.device_bytes, plan.device_budget_bytes, /*on_device=*/true};
  return device.fits() ? BudgetedPart{plan.host_bytes, plan.budget_bytes} : device;
}

Result<Plan> plan_memory(const Inputs& inputs) {
  TARN_ASSERT(inputs.model != nullptr);
  TARN_ASSERT(inputs.config != nullptr);
  TARN_ASSERT(inputs.n_workers > 0);
  TARN_CHECK(config_validate(*inputs.config));

  TARN_TRY(const Plan whole, plan_with(inputs, {}));
  const u64 memory_bytes = inputs.config->kv_memory_bytes;
  const bool keeps = inputs.config->store.sessions;
  if (!keeps && memory_bytes == 0 && (whole.fits || inputs.config->store.is_off())) return whole;
  const u32 n_least = tier_frames_least(inputs, whole);
  const u32 n_most = keeps ? tier_frames_for_all(inputs, whole) : whole.groups_max - 1;
  u64 n_frames = memory_bytes / whole.group_shape.group_bytes();
  // Then it may all lie in memory; the host's says nothing of a discrete GPU's.
  const bool is_elsewhere = !whole.one_budget && !whole.fits && !inputs.config->store.is_off();
  if (!keeps && n_frames > n_most && !is_elsewhere) return whole;
  n_frames = std::min<u64>(n_frames, n_most);
  const Result<void> possible = check_tiers(inputs, whole);
  if (keeps && !possible) return fail(possible.error());
  if (memory_bytes == 0) {
    if (!possible && !whole.one_budget) return fail(possible.error());
    if (!possible || n_least > n_most) return whole;
    return plan_with_frames_that_fit(inputs, n_least, n_most);
  }
  if (!possible) return fail(possible.error());
  if (n_frames < n_least) {
    return refuse(Status::invalid_config,
                  "kv.memory_bytes holds fewer groups of KV than a step needs: raise it to "
                  "least_bytes, or lower engine.batch_rows_max or engine.sessions_max",
                  "kv.memory_bytes", {"kv_memory_bytes", memory_bytes},
                  {"least_bytes", n_least * whole.group_shape.group_bytes()});
  }
  return plan_with_frames(inputs, static_cast<u32>(n_frames));
}

}  // namespace tarn::plan
