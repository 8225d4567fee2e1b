// The memory plan: a pure function from the model's description, the configuration and the device
// to a table of regions. `tarn plan` prints it without loading anything; opening an engine reserves
// exactly it.
//
// kRegions has a row a region: its name, where it lies, and the carve() that counts it. The owner
// of the memory carves by the same carve(). One more region is a name and a row here.
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
#include "runtime/chat/model_templates.h"
#include "runtime/config/config.h"
#include "runtime/exec/cpu/attention_memory.h"
#include "runtime/exec/gpu/regions.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/kv/tier_store.h"
#include "runtime/method/index_memory.h"
#include "runtime/method/select_layout.h"
#include "runtime/model/embedding_file.h"
#include "runtime/model/model_spec.h"
#include "runtime/model/weights.h"
#include "runtime/plan/tier_shape.h"
#include "runtime/reuse/blend/blend.h"

namespace tarn::plan {

// The order of the regions in a plan; the engine asks the arena for them by this index. Those on a
// device lie there in this order (exec::GpuMemory).
enum class RegionId : u8 {
  weights,
  kv_groups,
  kv_tables,
  activations,
  attention,
  logits,
  tokenizer,
  sessions,
  io_staging,
  text,
  chat,
  blend,
  select_index,
  select_scratch,
  select_device,
  select_gather,
  store,
  kv_cache,
  kv_device,
  kv_disk,
  mirror,
  driver,
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
  u32 running_max = 0, waiting_max = 0;  // sessions
  u64 token_gap_ns = 0;                  // 0: no bound
  u32 rows_max = 0;                      // batch_rows_max, but no more than there are slots
  u32 n_workers = 0;
  u32 logit_rows_max = 0;
  u64 text_scratch_bytes = 0;  // of the tokenizer at most; 0: no text is tokenized
  u64 render_bytes = 0;        // of one conversation; 0: the model has no chat template
  u32 pages_max = 0;           // of one layer of one session
  method::SelectShape select{};
  TierShape tiers{};
  exec::AttentionSizes attention{};  // of a CPU's
  exec::GpuSizes gpu{};
  bool has_gpu() const { return gpu.rows_max > 0; }
  u32 n_blends = 0;  // prompts with chunks that run at a time; 0: chunks are not blended
  reuse::BlendSizes blend_sizes(const model::ModelSpec& spec) const {
    return {.spec = &spec,
            .context_tokens = context_tokens,
            .page_tokens = group_shape.page_tokens,
            .rows_max = rows_max,
            .n_workers = n_workers};
  }
  const Region& of(RegionId id) const { return regions[static_cast<u64>(id)]; }
};

inline constexpr u32 kLogitRowsMin = 8;  // evaluation wants many rows, a generation one
// The memory of a rendered conversation, without chat.memory_bytes. One message that fits in the
// context fits here: in a run of dashes a token stands for 64 bytes. The built-in templates need 4
// bytes for each: one half has the messages, the other the text with its origins.
constexpr u64 render_bytes_auto(u64 context_tokens) { return context_tokens * 64 * 4 + kMiB; }
inline constexpr u64 kPieceBytesMax = 2 * kKiB;                        // of one token
inline constexpr u64 kShownBytesMax = 3 * (kPieceBytesMax + 4) + 256;  // what a token can show

// Carves what the engine takes of a region that is its own. The plan counts by the same function.
using CarveFn = void (*)(RegionId region, const Plan& plan, const model::ModelSpec& spec,
                         Carver& carver);

struct Inputs {
  const model::ModelDescription* model = nullptr;
  const Config* config = nullptr;
  DeviceFacts device{};
  u64 tokenizer_bytes = 0;  // text::Tokenizer::memory_bytes
  u64 templates_bytes = 0;  // chat::TemplateSources::memory_bytes
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

// ---- The regions -------------------------------------------------------------------------------

// Where a region lies: near the arithmetic is in a GPU's memory, where there is a GPU. Rows of what
// is near in pieces may lie in different slabs.
enum class Location : u8 { host, near, near_in_pieces, disk, driver };

struct RegionRow {
  RegionId id;
  const char* name;
  RegionKind kind;
  Location location;
  const char* why_none;  // what the formula says of a region that nothing is carved of
  void (*carve)(Carver& carver, const Inputs& in, const Plan& plan);
};

// Carves what the engine takes of a region of its own.
template <RegionId kId>
void carve_engine(Carver& carver, const Inputs& in, const Plan& plan) {
  if (in.carve != nullptr) in.carve(kId, plan, in.model->spec, carver);
}

inline constexpr RegionRow kRegions[] = {
    {RegionId::weights, "weights", RegionKind::weights, Location::near, "",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       const u64 host_bytes =  // with a GPU they are in the mirror
           model::weights_table_bytes(*in.model) + model::row_checksums_bytes(in.model->spec);
       carver.take<std::byte>(
           "tiles", *model::weights_region_bytes(*in.model) - (plan.has_gpu() ? host_bytes : 0));
     }},
    {RegionId::kv_groups, "kv_groups", RegionKind::kv, Location::near_in_pieces, "",
     [](Carver& carver, const Inputs&, const Plan& plan) {
       const u64 group_bytes = plan.group_shape.group_bytes();
       if (plan.tiers.is_on()) {
         carver.rows<std::byte>("frame", plan.tiers.n_frames, group_bytes);
       } else {
         carver.rows<std::byte>("group", plan.groups_max, group_bytes);
       }
     }},
    {RegionId::kv_tables, "kv_tables", RegionKind::kv, Location::host, "",
     [](Carver& carver, const Inputs&, const Plan& plan) { kv::KvTables::carve(carver, plan.kv); }},
    {RegionId::activations, "activations", RegionKind::scratch, Location::near, "",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       if (plan.has_gpu()) {
         exec::GpuStepMemory::carve(carver, in.model->spec, plan.gpu);
       } else {
         exec::CpuStepMemory::carve(carver, in.model->spec, plan.rows_max);
       }
     }},
    {RegionId::attention, "attention", RegionKind::scratch, Location::near, "",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       if (plan.has_gpu()) {
         exec::GpuAttentionMemory::carve(carver, in.model->spec, plan.gpu);
       } else {
         exec::AttentionMemory::carve(carver, in.model->spec, plan.attention);
       }
     }},
    {RegionId::logits, "logits", RegionKind::scratch, Location::near, "",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       if (plan.has_gpu()) {
         exec::GpuLogitsMemory::carve(carver, in.model->spec, plan.gpu);
       } else {
         carve_engine<RegionId::logits>(carver, in, plan);
       }
     }},
    {RegionId::tokenizer, "tokenizer", RegionKind::other, Location::host, "",
     [](Carver& carver, const Inputs& in, const Plan&) {
       carver.take<std::byte>("vocabulary", in.tokenizer_bytes);
     }},
    {RegionId::sessions, "sessions", RegionKind::other, Location::host, "",
     &carve_engine<RegionId::sessions>},
    {RegionId::io_staging, "io_staging", RegionKind::io, Location::host, "",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       const model::TensorRef& table = in.model->tensors.of(model::ModelTensor::token_embd);
       const bool on_disk = in.model->spec.embedding_on_disk;
       carver.take<std::byte>("read ahead",
                              std::max(model::loader_staging_bytes(*in.model, plan.has_gpu()),
                                       on_disk ? model::EmbeddingFile::memory_bytes(table) : 0));
     }},
    {RegionId::text, "text", RegionKind::scratch, Location::host, "",
     &carve_engine<RegionId::text>},
    {RegionId::chat, "chat", RegionKind::other, Location::host, "the model has no chat template",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       chat::ChatMemory::carve(carver, in.templates_bytes, plan.render_bytes);
     }},
    {RegionId::blend, "blend", RegionKind::scratch, Location::host, "chunks want reuse.prefix",
     &carve_engine<RegionId::blend>},
    {RegionId::select_index, "select_index", RegionKind::codes, Location::host,
     "every token is read",
     [](Carver& carver, const Inputs&, const Plan& plan) {
       method::IndexSets::carve(carver, plan.select);
     }},
    {RegionId::select_scratch, "select_scratch", RegionKind::scratch, Location::host,
     "every token is read",
     [](Carver& carver, const Inputs&, const Plan& plan) {
       method::SelectScratch::carve(carver, plan.select);
     }},
    {RegionId::select_device, "select_device", RegionKind::codes, Location::near,
     "no GPU reads by selection",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       if (plan.has_gpu()) exec::GpuIndexMemory::carve(carver, in.model->spec, plan.gpu);
     }},
    {RegionId::select_gather, "select_gather", RegionKind::scratch, Location::near,
     "no GPU reads by selection",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       if (plan.has_gpu()) exec::GpuSelectMemory::carve(carver, in.model->spec, plan.gpu);
     }},
    {RegionId::store, "store", RegionKind::io, Location::host, "KV is in memory",
     [](Carver& carver, const Inputs&, const Plan& plan) {
       if (!plan.tiers.is_on()) return;
       kv::TierStoreMemory::carve(carver, plan.tiers.store);
       if (plan.tiers.store.keeps) reuse::SaveMemory::carve(carver, plan.tiers.saves);
     }},
    {RegionId::kv_cache, "kv_cache", RegionKind::kv, Location::host,
     "no slots of groups on disk are chosen",
     [](Carver& carver, const Inputs&, const Plan& plan) {
       carver.take<std::byte>("caches", plan.tiers.cache_bytes);
       carver.take<std::byte>("extents", plan.tiers.extents_bytes);
     }},
    {RegionId::kv_device, "kv_device", RegionKind::kv, Location::near_in_pieces,
     "no KV of a disk stays in a GPU's memory",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       carver.rows<std::byte>("stripe", u64{plan.gpu.n_stripes} * in.model->spec.n_cache_layers,
                              plan.gpu.stripe_bytes());
     }},
    {RegionId::kv_disk, "kv_disk", RegionKind::kv, Location::disk, "KV is in memory",
     [](Carver& carver, const Inputs&, const Plan& plan) {
       if (!plan.tiers.is_on()) return;
       const u64 records_bytes = plan.tiers.disk_bytes - store::kFramesBegin;
       const u64 frame_bytes = plan.tiers.store.frame_bytes;
       carver.rows<std::byte>("record", records_bytes / frame_bytes, frame_bytes);
       carver.take<std::byte>("labels", store::kFramesBegin);
       carver.take<std::byte>("rest", records_bytes % frame_bytes);
     }},
    {RegionId::mirror, "mirror", RegionKind::io, Location::host,
     "the CPU reads what the host writes",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       if (!plan.has_gpu()) return;
       exec::GpuHostMemory::carve(carver, in.model->spec, plan.gpu);
       carve_engine<RegionId::logits>(carver, in, plan);
     }},
    {RegionId::driver, "driver", RegionKind::driver, Location::driver, "no GPU",
     [](Carver& carver, const Inputs& in, const Plan& plan) {
       if (plan.has_gpu()) carver.take<std::byte>("at most", in.config->driver_limit_bytes);
     }},
};
static_assert(std::size(kRegions) == static_cast<u64>(RegionId::count));

}  // namespace tarn::plan
