#include "runtime/plan/plan.h"

#include <algorithm>

#include "kernels/attn/attn.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/config/fixed_text.h"
#include "runtime/kv/tier_store.h"
#include "runtime/method/index_memory.h"
#include "runtime/model/embedding_file.h"
#include "runtime/model/weights.h"
#include "runtime/plan/gpu_shape.h"
#include "runtime/plan/kv_type.h"
#include "runtime/plan/step_memory.h"

namespace tarn::plan {
namespace {

constexpr u64 kPieceAlignment = 64;
constexpr u64 kRegionAlignment = 4096;  // the arena's
constexpr u64 kMirrorPiecesMax = 20;    // whose alignment is counted

using Formula = FixedText<sizeof(Region::formula)>;

// Collects the regions; a size that overflowed makes the whole plan invalid.
class Builder {
 public:
  Builder(Plan* plan, const DeviceFacts& device) : plan_(plan), device_(device) {
    if (has_gpu()) plan_->slabs = SlabCutter(device);
  }
  bool has_gpu() const { return device_.kind != DeviceKind::cpu; }

  void add(RegionId id, const char* name, RegionKind kind, Checked bytes, const Formula& formula) {
    host_ = host_ + bytes.aligned_up(kRegionAlignment);
    put(id, name, RegionSpace::host, kind, bytes, formula);
  }
  // Of the GPU's memory where there is a GPU; in `n` pieces, each of which is contiguous there.
  void add_near(RegionId id, const char* name, RegionKind kind, Checked piece_bytes, u64 n,
                const Formula& formula) {
    if (!has_gpu() || n == 0 || piece_bytes.get() == u64{0}) {  // a slab has no empty pieces
      return add(id, name, kind, piece_bytes * n, formula);
    }
    plan_->slabs.add(piece_bytes, n);
    put(id, name, RegionSpace::device, kind, piece_bytes * n, formula);
  }
  void add_weights_near(const model::ModelDescription& model, u64 bytes, const Formula& formula) {
    model::each_weight_piece(
        model, [](void* slabs, Checked piece) { static_cast<SlabCutter*>(slabs)->add(piece); },
        &plan_->slabs);
    put(RegionId::weights, "weights", RegionSpace::device, RegionKind::weights,
        bytes - model::weights_table_bytes(model) - model::row_checksums_bytes(model.spec),
        formula);
  }
  // Of a disk: no memory, and under no budget of memory.
  void add_disk(RegionId id, const char* name, RegionKind kind, u64 bytes, const Formula& formula) {
    plan_->disk_bytes += bytes;
    put(id, name, RegionSpace::disk, kind, bytes, formula);
  }
  // Not a reservation of ours: what somebody else takes of the GPU's memory.
  void add_driver(u64 bytes, const Formula& formula) {
    driver_bytes_ = bytes;
    put(RegionId::driver, "driver", RegionSpace::device, RegionKind::driver, bytes, formula);
  }
  // False where a size passed 64 bits.
  bool sum_up() {
    const Checked device =
        (has_gpu() ? plan_->slabs.total_bytes() : Checked(0)) + Checked(driver_bytes_);
    const Checked total = host_ + device;
    plan_->host_bytes = host_.get().value_or(0);
    plan_->device_bytes = device.get().value_or(0);
    plan_->total_bytes = total.get().value_or(0);
    return total.valid();
  }

 private:
  void put(RegionId id, const char* name, RegionSpace space, RegionKind kind, Checked bytes,
           const Formula& formula) {
    plan_->regions[static_cast<u64>(id)] = {.name = name,
                                            .space = space,
                                            .kind = kind,
                                            .bytes = bytes.get().value_or(0),
                                            .formula = formula.array()};
  }

  Plan* plan_;
  const DeviceFacts& device_;
  Checked host_ = 0;
  u64 driver_bytes_ = 0;
};

void add_weights(Builder& builder, const model::ModelDescription& description, u64 bytes) {
  u64 n_tensors = 0;
  for (const model::TensorRef& tensor : description.tensors.model) n_tensors += tensor.present();
  for (const model::TensorRef& tensor : description.tensors.layers) n_tensors += tensor.present();
  Formula formula;
  formula << n_tensors << " tensors of " << description.spec.weights_file_bytes << " B in the file";
  if (description.spec.embedding_on_disk) {
    formula << " less " << description.tensors.of(model::ModelTensor::token_embd).file_bytes
            << " B of embeddings, in tiles";
  } else {
    formula << ", matrices in tiles of 16 rows";
  }
  if (builder.has_gpu()) {
    builder.add_weights_near(description, bytes, formula);
  } else {
    builder.add(RegionId::weights, "weights", RegionKind::weights, bytes, formula);
  }
}

void add_kv(Builder& builder, const Plan& plan) {
  const u64 group_bytes = plan.group_shape.group_bytes();
  const TierShape& tiers = plan.tiers;
  Formula disk;
  Carver groups, store;
  if (tiers.is_on()) {
    disk << "file of " << (tiers.disk_bytes - store::kFramesBegin) / tiers.store.frame_bytes
         << " records of " << tiers.store.frame_bytes << " B";
    if (tiers.extents.is_on()) disk << ", for groups and, of the middle, extents";
    kv::TierStoreMemory::carve(store, tiers.store);
    if (tiers.store.keeps) reuse::SaveMemory::carve(store, tiers.saves);
    // Frames are the disk's and the host's to reach.
    groups.rows<std::byte>("frame", tiers.n_frames, group_bytes);
    builder.add(RegionId::kv_groups, "kv_groups", RegionKind::kv, groups.n_bytes(),
                groups.formula());
  } else {
    disk << "none: KV is in memory";
    groups.rows<std::byte>("group", plan.groups_max, group_bytes);
    builder.add_near(RegionId::kv_groups, "kv_groups", RegionKind::kv, group_bytes, plan.groups_max,
                     groups.formula());
  }
  builder.add(RegionId::store, "store", RegionKind::io, store.n_bytes(),
              tiers.is_on() ? store.formula() : Formula() << "none: KV is in memory");
  Carver cache;
  cache.take<std::byte>("caches", tiers.cache_bytes);
  cache.take<std::byte>("extents", tiers.extents_bytes);
  const bool is_cached = tiers.cache_slots > 0;
  builder.add(
      RegionId::kv_cache, "kv_cache", RegionKind::kv, cache.n_bytes(),
      is_cached ? cache.formula() : Formula() << "none: no slots of groups on disk are chosen");
  builder.add_disk(RegionId::kv_disk, "kv_disk", RegionKind::kv, tiers.disk_bytes, disk);

  Carver tables;
  kv::KvTables::carve(tables, plan.kv);
  builder.add(RegionId::kv_tables, "kv_tables", RegionKind::kv, tables.n_bytes(), tables.formula());
}

// What the engine takes of a region of its own.
Carver engine_part(const Inputs& inputs, const Plan& plan, RegionId region) {
  Carver carver;
  if (inputs.carve != nullptr) inputs.carve(region, plan, inputs.model->spec, carver);
  return carver;
}

void add_gpu_scratch(Builder& builder, const Inputs& inputs, const Plan& plan) {
  const model::ModelSpec& spec = inputs.model->spec;
  const GpuStreamShape& stream = plan.gpu_stream;
  const u64 n_slots = gpu_attended_slots(plan.context_tokens, stream.is_on());
  const Checked partials = gpu_partials_bytes(spec, n_slots);
  const u64 n_tables = u64{plan.sessions_max} + plan.gpu_select.n_rows;
  const Checked tables = gpu_page_tables_bytes(spec, n_tables, plan.pages_max);
  builder.add_near(RegionId::attention, "attention", RegionKind::scratch,
                   partials.aligned_up(kDevicePieceAlignment) +
                       tables.aligned_up(kDevicePieceAlignment) + stream.device_bytes(),
                   1,
                   Formula() << kGpuAttnRowsMax << " rows x " << spec.n_heads << " heads x "
                             << u64{gpu_spans(n_slots)} << " spans x "
                             << (spec.head_dim + 2) * sizeof(f32) << " B + "
                             << tables.get().value_or(0) << " B of page tables + "
                             << stream.device_bytes() << " B for KV on its way");
  const u64 summaries_bytes = gpu_summaries_bytes(spec, plan.logit_rows_max);
  builder.add_near(RegionId::logits, "logits", RegionKind::scratch,
                   Checked(spec.n_vocab) * plan.logit_rows_max * sizeof(f32) + summaries_bytes, 1,
                   Formula() << plan.logit_rows_max << " rows x " << spec.n_vocab << " x "
                             << sizeof(f32) << " B + " << summaries_bytes << " B of summaries");
  const u32 step_rows = gpu_step_rows(plan.rows_max);
  const u64 row_bytes = gpu_mirror_row_bytes(spec);
  const u32 n_selecting = plan.gpu_select.n_rows > 0 ? plan.sessions_max : 0;
  const u64 state_bytes = gpu_state_bytes(spec, step_rows, n_selecting);
  builder.add(RegionId::mirror, "mirror", RegionKind::io,
              engine_part(inputs, plan, RegionId::logits).n_bytes() + summaries_bytes + tables +
                  Checked(step_rows) * row_bytes + state_bytes + plan.gpu_select.window_bytes +
                  stream.host_bytes + model::weights_host_bytes(spec) +
                  u64{spec.n_rot} / 2 * sizeof(f64) + kMirrorPiecesMax * kPieceAlignment,
              Formula() << "logits and sampler + " << tables.get().value_or(0)
                        << " B of page tables + " << step_rows << " rows x " << row_bytes << " B + "
                        << state_bytes << " B of state + layers"
                        << (spec.embedding_on_disk ? " + checksums of embeddings" : "") << " + "
                        << plan.gpu_select.window_bytes << " B of keys");
}

void add_scratch(Builder& builder, const Inputs& inputs, const Plan& plan) {
  const model::ModelSpec& spec = inputs.model->spec;
  const u32 step_rows = builder.has_gpu() ? gpu_step_rows(plan.rows_max) : plan.rows_max;
  Carver step;
  StepMemory::carve(step, spec, step_rows);
  builder.add_near(RegionId::activations, "activations", RegionKind::scratch, step.n_bytes(), 1,
                   step.formula());
  if (builder.has_gpu()) return add_gpu_scratch(builder, inputs, plan);
  const Carver attention = engine_part(inputs, plan, RegionId::attention);
  builder.add(RegionId::attention, "attention", RegionKind::scratch, attention.n_bytes(),
              attention.formula());
  const Carver sampling = engine_part(inputs, plan, RegionId::logits);
  builder.add(RegionId::logits, "logits", RegionKind::scratch, sampling.n_bytes(),
              sampling.formula());
  builder.add(RegionId::mirror, "mirror", RegionKind::io, 0,
              Formula() << "none: the CPU reads what the host writes");
}

void add_others(Builder& builder, const Inputs& inputs, const Plan& plan) {
  builder.add(RegionId::tokenizer, "tokenizer", RegionKind::other, inputs.tokenizer_bytes,
              Formula() << "from the counts and bytes of the file's vocabulary");
  const Carver sessions = engine_part(inputs, plan, RegionId::sessions);
  builder.add(RegionId::sessions, "sessions", RegionKind::other, sessions.n_bytes(),
              sessions.formula());
  const model::ModelDescription& model = *inputs.model;
  u64 staging_bytes = model::loader_staging_bytes(model, builder.has_gpu());
  if (model.spec.embedding_on_disk) {
    staging_bytes = std::max(staging_bytes, model::EmbeddingFile::memory_bytes(
                                                model.tensors.of(model::ModelTensor::token_embd)));
  }
  builder.add(RegionId::io_staging, "io_staging", RegionKind::io, staging_bytes,
              Formula() << "what the loader reads ahead");
  if (builder.has_gpu()) {
    builder.add_driver(
        inputs.config->driver_limit_bytes,
        Formula() << "at most, for kernels, graphs and libraries; measured at start");
  } else {
    builder.add_driver(0, Formula() << "none: no GPU");
  }
  const Carver text = engine_part(inputs, plan, RegionId::text);
  builder.add(RegionId::text, "text", RegionKind::scratch, text.n_bytes(), text.formula());
}

void add_gpu_kept(Builder& builder, const model::ModelSpec& spec, const Plan& plan) {
  const GpuStreamShape& stream = plan.gpu_stream;
  Formula kept;
  if (stream.n_kept > 0) {
    kept << u64{stream.n_kept} << " chunks of " << kernels::kGpuMergeSlots << " tokens x "
         << spec.n_cache_layers << " layers x " << stream.staged_bytes
         << " B, of what the GPU has free";
  } else {
    kept << "none: no KV of a disk stays in a GPU's memory";
  }
  builder.add_near(RegionId::kv_device, "kv_device", RegionKind::kv, stream.staged_bytes,
                   u64{stream.n_kept} * spec.n_cache_layers, kept);
}

void add_gpu_select(Builder& builder, const Plan& plan) {
  const GpuSelectShape& shape = plan.gpu_select;
  Formula indexes, gathered;
  if (shape.n_rows == 0) {
    indexes << "none: no GPU reads by selection";
    gathered << "none: no GPU reads by selection";
  } else {
    indexes << plan.sessions_max << " sessions x " << shape.table_bytes << " B";
    gathered << shape.n_rows << " rows x " << shape.gathered_pages
             << " groups of chosen KV: " << shape.gathered_bytes << " B + "
             << shape.scratch_bytes() - shape.gathered_bytes << " B to choose";
  }
  builder.add_near(RegionId::select_device, "select_device", RegionKind::codes,
                   Checked(plan.sessions_max) * shape.table_bytes, 1, indexes);
  builder.add_near(RegionId::select_gather, "select_gather", RegionKind::scratch,
                   shape.scratch_bytes(), 1, gathered);
}

void add_select(Builder& builder, const model::ModelSpec& spec, const Plan& plan) {
  Carver indexes, scratch;
  method::IndexSets::carve(indexes, plan.select);
  method::SelectScratch::carve(scratch, plan.select);
  const auto formula = [&](const Carver& carver) {
    return plan.select.n_heads > 0 ? carver.formula() : Formula() << "none: every token is read";
  };
  builder.add(RegionId::select_index, "select_index", RegionKind::codes, indexes.n_bytes(),
              formula(indexes));
  builder.add(RegionId::select_scratch, "select_scratch", RegionKind::scratch, scratch.n_bytes(),
              formula(scratch));
  add_gpu_select(builder, plan);
  add_gpu_kept(builder, spec, plan);
}

Unexpected refuse(Status status, const char* hint, const char* key, Figure first, Figure second) {
  return fail(
      {.status = status, .hint = hint, .detail = Detail(key), .figures = {{first, second}}});
}

TierInputs tier_inputs(const Inputs& inputs, const Plan& plan) {
  const bool has_extents = inputs.config->store.extents;
  return {.group_shape = plan.group_shape,
          .groups_max = plan.groups_max,
          .sessions_max = plan.sessions_max,
          .rows_max = plan.rows_max,
          .n_pairs = has_extents ? plan.select.n_pairs : 0,
          .codebook_bytes = has_extents ? plan.select.codebook_bytes : 0,
          .n_chosen_max = plan.select.n_chosen_max,
          .cache_tokens = inputs.config->select.cache_tokens,
          .context_tokens = plan.context_tokens,
          .cut = inputs.store_cut};
}

bool has_whole_blocks(const model::ModelSpec& spec) { return spec.head_dim % 32 == 0; }

// How KV lies over memory and disk.
struct Tiers {
  u32 n_frames = 0;  // of the host's memory; 0: it is in memory as a whole
  u32 n_kept = 0;    // chunks in a discrete GPU's
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
  TARN_CHECK(method::select_check(spec, select));
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
  plan->rows_max = std::min(config.batch_rows_max, plan->context_tokens);
  plan->n_workers = inputs.n_workers;
  plan->logit_rows_max = std::max(config.sessions_max, kLogitRowsMin);
  // No more than the context could hold.
  plan->text_bytes_max = std::min(
      std::max<u64>(plan->context_tokens * kTextBytesATokenMax, 16 * kKiB), config.text_bytes_max);
  plan->group_shape = {
      .n_kv_heads = spec.n_kv_heads,
      .page_tokens = config.page_tokens,
      .vector_bytes = static_cast<u32>(kernels::kv_vector_bytes(kv_type(config), spec.head_dim))};
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
                                       .kv_type = kv_type(config),
                                       .place = place});
  if (has_gpu && n_frames > 0) {
    plan->gpu_stream = gpu_stream_shape(spec, plan->group_shape, gpu_step_rows(plan->rows_max),
                                        plan->select.n_chosen_max, tiers.n_kept);
  } else if (has_gpu) {
    plan->gpu_select = gpu_select_shape(spec, plan->select,
                                        {.context_tokens = plan->context_tokens,
                                         .pages_max = plan->pages_max,
                                         .sessions_max = plan->sessions_max,
                                         .step_rows = gpu_step_rows(plan->rows_max),
                                         .group = plan->group_shape});
  }
  if (n_frames > 0) {
    TARN_TRY(plan->tiers, tier_shape(spec, config, tier_inputs(inputs, *plan), n_frames));
  }
  plan->kv = {.shape = plan->group_shape,
              .groups_max = plan->groups_max,
              .sessions_max = plan->sessions_max,
              .n_cache_layers = spec.n_cache_layers,
              .context_tokens = plan->context_tokens,
              .n_frames = plan->tiers.n_frames,
              .n_names = plan->tiers.store.keeps ? plan->groups_max / spec.n_cache_layers : 0};
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
                        "theirs in the store: set select.method to another one, or store.sessions "
                        "to false"
                      : "the oracle reads every key of KV in memory alone: set select.method to "
                        "another one, raise kv.memory_bytes, or lower -c (kv.context_tokens)",
                  "select.method", needed, {});
  }
  return {};
}

// Of a discrete GPU's own memory. Nobody need say how much there is; where the GPU is open, its
// context has its part of it already.
u64 device_ceiling_bytes(const Inputs& inputs) {
  const u64 wanted = inputs.config->device_budget_bytes;
  const DeviceFacts& device = inputs.device;
  return wanted != 0                     ? wanted
         : device.memory_free_bytes != 0 ? device.memory_free_bytes
                                         : device.memory_bytes;
}

Result<Plan> plan_with(const Inputs& inputs, const Tiers& tiers) {
  const model::ModelSpec& spec = inputs.model->spec;
  TARN_TRY(const u64 weights_bytes, model::weights_region_bytes(*inputs.model));

  Plan plan;
  TARN_CHECK(derive_sizes(inputs, tiers, &plan));
  Builder builder(&plan, inputs.device);
  add_weights(builder, *inputs.model, weights_bytes);
  add_kv(builder, plan);
  add_scratch(builder, inputs, plan);
  add_others(builder, inputs, plan);
  add_select(builder, spec, plan);

  if (!builder.sum_up()) {
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

// Chunks of contexts that a discrete GPU has room for beside all else: of that memory nobody else
// makes use. Where both are one memory, frames are as good.
Result<u32> kept_chunks(const Inputs& inputs, u32 n_frames) {
  TARN_TRY(const Plan plan, plan_with(inputs, {n_frames}));
  if (!plan.gpu_stream.is_on() || plan.one_budget) return 0u;
  const u64 unit_bytes = plan.gpu_stream.staged_bytes * inputs.model->spec.n_cache_layers;
  // Where nobody said how much of it is ours, a tenth is left to others.
  const u64 ceiling = inputs.config->device_budget_bytes != 0
                          ? plan.device_budget_bytes
                          : plan.device_budget_bytes - plan.device_budget_bytes / 10;
  const u64 spare = ceiling - std::min(ceiling, plan.device_bytes);
  const u64 n_chunks = plan.pages_max / plan.gpu_stream.chunk_groups;
  auto n_kept = static_cast<u32>(std::min({spare / unit_bytes, n_chunks, u64{kGpuKeptMax}}));
  for (; n_kept > 0; --n_kept) {  // ends of slabs take something, too
    TARN_TRY(const Plan more, plan_with(inputs, {n_frames, n_kept}));
    if (more.device_bytes <= ceiling) break;
  }
  return n_kept;
}

// As many frames as the budget leaves room for. More frames are more of other things too: extents
// need entries in the store's index, and come only from some size on.
Result<Plan> plan_with_frames_that_fit(const Inputs& inputs, u32 n_least, u32 n_most) {
  TARN_TRY(u32 n_kept, kept_chunks(inputs, n_least));
  TARN_TRY(Plan best, plan_with(inputs, {n_least, n_kept}));
  if (!best.fits && n_kept > 0) {  // what says where they lie is the host's
    n_kept = 0;
    TARN_TRY(best, plan_with(inputs, {n_least}));
  }
  if (!best.fits) return best;
  for (u32 least = n_least + 1, most = n_most; least <= most;) {
    const u32 n_frames = least + (most - least) / 2;
    TARN_TRY(const Plan plan, plan_with(inputs, {n_frames, n_kept}));
    if (plan.fits) best = plan;
    if (plan.fits) least = n_frames + 1;
    if (!plan.fits) most = n_frames - 1;
  }
  return best;
}

// The same of frames that somebody asked for.
Result<Plan> plan_with_frames(const Inputs& inputs, u32 n_frames) {
  TARN_TRY(const u32 n_kept, kept_chunks(inputs, n_frames));
  TARN_TRY(const Plan plan, plan_with(inputs, {n_frames, n_kept}));
  if (plan.fits || n_kept == 0) return plan;
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
  const TierInputs tiers = tier_inputs(inputs, whole);
  const u32 n_least = tier_frames_least(inputs.model->spec, tiers);
  const u32 n_most = keeps ? tier_frames_for_all(inputs.model->spec, tiers) : whole.groups_max - 1;
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
