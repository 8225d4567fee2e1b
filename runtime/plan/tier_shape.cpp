#include "runtime/plan/tier_shape.h"

#include <algorithm>

#include "runtime/kv/slot_cache.h"
#include "runtime/method/select_layout.h"
#include "runtime/plan/plan.h"

namespace tarn::plan {
namespace {

constexpr u32 kSpareRecords = 128;  // published for groups that are released meanwhile
constexpr u32 kCacheStepsMax = 4;   // what a cache holds at most, in what a step chooses
constexpr u32 kManifestsSpare = 4;  // beside two of each session: the new one before the old goes
constexpr u32 kExtentPiecesLeast = 2;
constexpr u32 kPinSetsLeast = 4;  // one attended to, two on their way, one being spilled

u64 n_heads_of(const Inputs& inputs) {
  const model::ModelSpec& spec = inputs.model->spec;
  return u64{inputs.config->sessions_max} * spec.n_cache_layers * spec.n_kv_heads;
}

u32 slot_bytes_of(const Plan& plan) { return 2 * plan.group_shape.vector_bytes; }

// Counts the frames that selection keeps in memory, beside what a step needs: sinks and local
// windows, and room for the sectors that are on their way.
u64 near_frames(const Inputs& inputs, const Plan& plan) {
  const SelectConfig& select = inputs.config->select;
  const u32 n_cache_layers = inputs.model->spec.n_cache_layers;
  const u32 page_tokens = plan.group_shape.page_tokens;
  const method::Budget budget =
      method::budget(method::budget_rule(select), plan.groups_max / n_cache_layers * page_tokens);
  const u64 sinks = ceil_div(select.n_sinks, page_tokens);
  const u64 local = ceil_div(budget.n_local, page_tokens) + 1;
  return u64{plan.sessions_max} * n_cache_layers * (sinks + local) + kTierMovesMax;
}

// Returns what the cache of chosen slots and the extents may take of `n_frames`.
u64 spare_bytes(const Inputs& inputs, const Plan& plan, u32 n_frames) {
  if (plan.select.n_chosen_max == 0) return 0;
  const u64 n_kept = tier_frames_least(inputs, plan) + near_frames(inputs, plan);
  return (n_frames - std::min<u64>(n_frames, n_kept)) * plan.group_shape.group_bytes();
}

u32 cache_slots_of(u64 bytes, u64 n_heads, const Plan& plan) {
  const u64 most = u64{kCacheStepsMax} * plan.select.n_chosen_max;
  const u64 a_head = bytes / n_heads;
  return static_cast<u32>(std::min<u64>(
      most, kv::SlotCache::capacity_of(a_head - std::min<u64>(a_head, sizeof(kv::SlotCache)),
                                       slot_bytes_of(plan))));
}

// Where records of saved indexes alone are read and written, without any order.
bool saves_without_order(const Inputs& inputs, const Plan& plan) {
  return inputs.config->store.sessions && plan.select.n_pairs == 0 &&
         plan.select.codebook_bytes > 0;
}

// Extents are laid out a layer at a time, in the memory of a session's caches: a record of each
// head must find room there.
void split_extents(const Inputs& inputs, const Plan& plan, u64 frame_bytes, u64 spare, u32 n_orders,
                   TierShape* shape) {
  const model::ModelSpec& spec = inputs.model->spec;
  const u64 n_heads = n_heads_of(inputs);
  const u32 slot_bytes = slot_bytes_of(plan);
  const u32 n_pairs = inputs.config->select.disk_reorder ? plan.select.n_pairs : 0;
  const u32 n_slots = cache_slots_of(spare / 2, n_heads, plan);
  constexpr u64 kPieceBytes = kv::kExtentPieceSectors * store::kSectorBytes;
  if (n_slots == 0 || slot_bytes + 2 * store::kSectorBytes > kPieceBytes) return;
  kv::ExtentShape extents{.slot_bytes = slot_bytes,
                          .n_orders = 0,
                          .n_heads = static_cast<u32>(n_heads),
                          .n_pieces = static_cast<u32>(std::clamp<u64>(
                              spare / 16 / kPieceBytes, kExtentPiecesLeast, kv::kExtentPiecesMax))};
  Carver order;
  if (n_pairs > 0) {
    const u64 caches_bytes = u64{spec.n_cache_layers} * spec.n_kv_heads *
                             kv::SlotCache::region_bytes(n_slots, slot_bytes);
    const u64 frame_sectors = frame_bytes / store::kSectorBytes;
    const u64 most_sectors = std::min<u64>(
        store::kHeadWords, (caches_bytes - std::min(caches_bytes, store::kSectorBytes)) /
                               spec.n_kv_heads / store::kSectorBytes);
    // Whole frames of the file, less the head.
    const u64 n_frames = (most_sectors + 1) / frame_sectors;
    const u64 sectors = n_frames > 0 ? n_frames * frame_sectors - 1 : most_sectors;
    const u64 record_tokens = sectors * store::kSectorBytes / slot_bytes;
    if (record_tokens == 0) return;
    extents.n_pairs = n_pairs;
    extents.record_tokens = static_cast<u32>(record_tokens);
    extents.records_max = static_cast<u32>(ceil_div(plan.context_tokens, record_tokens));
    extents.n_orders = n_orders;
    method::OrderMemory::carve(order, spec, plan.sessions_max, n_pairs);
  } else if (!saves_without_order(inputs, plan)) {
    return;
  }
  const u64 bytes = extents.bytes() + align_up(*order.n_bytes().get(), Carver::kAlignment);
  if (bytes > spare / 2) return;
  shape->extents = extents;
  shape->extents_bytes = bytes;
}

// Takes frames for the cache, no more than are useful there. Extents are built in its memory, a
// part of the middle at a time, so with them a bound of its slots gives none of it back.
void split_cache(const Inputs& inputs, const Plan& plan, u64 spare, TierShape* shape) {
  if (spare == 0) return;
  const u64 group_bytes = plan.group_shape.group_bytes();
  const u64 n_heads = n_heads_of(inputs);
  const u32 room = cache_slots_of(spare - shape->extents_bytes, n_heads, plan);
  const u32 cache_tokens = inputs.config->select.cache_tokens;
  const bool has_extents = shape->extents.is_on();
  shape->cache_slots = cache_tokens != 0 ? std::min(room, cache_tokens) : room;
  if (shape->cache_slots == 0) return;
  shape->cache_head_bytes =
      kv::SlotCache::region_bytes(has_extents ? room : shape->cache_slots, slot_bytes_of(plan));
  Carver caches;
  caches.take<kv::SlotCache>("caches", n_heads);
  caches.take<std::byte>("slots", n_heads * shape->cache_head_bytes);
  shape->cache_bytes = align_up(*caches.n_bytes().get(), has_extents ? store::kSectorBytes : 1);
  const u64 bytes = shape->cache_bytes + shape->extents_bytes;
  shape->n_frames -= static_cast<u32>(std::min(ceil_div(bytes, group_bytes), spare / group_bytes));
}

// The file's own frames where sessions lie in it, else one for each group's record.
Result<u64> frame_bytes_of(const Inputs& inputs, u64 record_bytes) {
  const Config& config = *inputs.config;
  const u64 wanted_bytes = config.store.frame_bytes;
  if (wanted_bytes != 0 && wanted_bytes < record_bytes) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "store.frame_bytes",
                 .hint = "a frame of the store holds less than a group of KV with its head: raise "
                         "it to least_bytes, or set 0, which takes what a group needs",
                 .detail = Detail("store.frame_bytes"),
                 .figures = {{{"frame_bytes", wanted_bytes}, {"least_bytes", record_bytes}}}});
  }
  const bool has_sessions = config.store.sessions && inputs.store_cut.frame_bytes != 0;
  if (!has_sessions) return std::max(wanted_bytes, record_bytes);
  const u64 frame_bytes = inputs.store_cut.frame_bytes;
  if (wanted_bytes != 0 && wanted_bytes != frame_bytes) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "store.frame_bytes",
                 .hint = "the file with kept sessions is cut into other frames, and another cut "
                         "would lose them: set 0, or name another folder (--store DIR)",
                 .detail = Detail("store.frame_bytes"),
                 .figures = {{{"frame_bytes", wanted_bytes}, {"file_has", frame_bytes}}}});
  }
  if (!store::frames_suit(frame_bytes, record_bytes)) {
    return fail({.status = Status::invalid_config,
                 .reason = Reason::bad_setting,
                 .key = "store.path",
                 .hint = "the sessions in this folder are of a model with KV of another size: give "
                         "this one a folder of its own (--store DIR)",
                 .detail = Detail("store.path"),
                 .figures = {{{"frame_bytes", frame_bytes}, {"record_bytes", record_bytes}}}});
  }
  return frame_bytes;
}

// The store would make the file shorter, and sessions in its end would go.
Result<void> check_quota(const StoreConfig& store, const store::Cut& cut) {
  const u64 file_bytes = store::kFramesBegin + cut.n_frames * cut.frame_bytes;
  if (!store.sessions || cut.n_frames == 0 || file_bytes <= store.quota_bytes) return {};
  return fail({.status = Status::invalid_config,
               .reason = Reason::bad_setting,
               .key = "store.quota_bytes",
               .hint = "the file with kept sessions is larger than the store may be: raise it to "
                       "file_bytes, or pack the sessions (tarn store pack), remove "
                       "sessions.tarn and import them",
               .detail = Detail("store.quota_bytes"),
               .figures = {{{"quota_bytes", store.quota_bytes}, {"file_bytes", file_bytes}}}});
}

// All groups of the context must find a place: in the store, or, where no session is kept there, in
// memory. A generation that found none would end in the middle. So must those that kept sessions
// were promised.
Result<void> check_room(const StoreConfig& store, u64 frame_bytes, u64 n_frames, u64 n_needed) {
  const u64 least_bytes = store::kFramesBegin + n_needed * frame_bytes;
  if (n_frames >= n_needed) return {};
  return fail({.status = Status::invalid_config,
               .reason = Reason::bad_setting,
               .key = "store.quota_bytes",
               .hint = "the context's KV finds no room in the store: raise store.quota_bytes to "
                       "least_bytes (--store takes half of what its disk has free), or lower -c "
                       "(kv.context_tokens) or store.kept_tokens",
               .detail = Detail("store.quota_bytes"),
               .figures = {{{"quota_bytes", store.quota_bytes}, {"least_bytes", least_bytes}}}});
}

// In which the extents of the whole context lie; each session's last records may be short. Where
// sessions are kept, each has its codebooks, too, and those of a job beside them.
u64 extent_frames(const model::ModelSpec& spec, const kv::ExtentShape& extents, u64 frame_bytes,
                  u64 sessions_max, u64 codebook_bytes) {
  if (!extents.is_on()) return 0;
  const store::RecordShape record{.payload_bytes = extents.record_bytes()};
  const store::RecordShape codebook{.payload_bytes = codebook_bytes};
  const u64 n_heads = u64{spec.n_cache_layers} * spec.n_kv_heads;
  const u64 n_codebooks = codebook_bytes > 0 ? 2 * sessions_max : 0;
  return n_heads *
         (extents.n_orders * (extents.records_max + sessions_max) * record.frames(frame_bytes) +
          n_codebooks * codebook.frames(frame_bytes));
}

// Shapes the store's file, the caches and extents in memory, and the share of sessions.
Result<void> cut_store(const Inputs& inputs, const Plan& plan, TierShape* shape) {
  const model::ModelSpec& spec = inputs.model->spec;
  const Config& config = *inputs.config;
  const bool keeps = config.store.sessions;
  const u32 page_tokens = plan.group_shape.page_tokens;
  const u64 group_bytes = plan.group_shape.group_bytes();
  const store::RecordShape record{.payload_bytes = group_bytes, .n_tokens = page_tokens};
  store::RecordShape manifest{};
  if (keeps) {
    shape->saves = {.context_tokens = plan.context_tokens,
                    .page_tokens = page_tokens,
                    .group_bytes = group_bytes,
                    .n_cache_layers = spec.n_cache_layers};
    manifest.payload_bytes = reuse::SaveMemory::manifest_bytes(shape->saves);
  }
  const bool has_codebooks =
      keeps && (config.select.disk_reorder || saves_without_order(inputs, plan));
  const store::RecordShape codebook{.payload_bytes =
                                        has_codebooks ? plan.select.codebook_bytes : 0};
  TARN_TRY(const u64 frame_bytes, frame_bytes_of(inputs, record.record_bytes()));
  TARN_CHECK(check_quota(config.store, inputs.store_cut));
  // The context's need, and that of kept sessions; the quota is a ceiling.
  const u64 kept_tokens = keeps ? config.store.kept_tokens : 0;
  const u64 n_asked = ceil_div(kept_tokens, page_tokens) * spec.n_cache_layers;
  const u64 n_kept = keeps && n_asked == 0 ? plan.groups_max : n_asked;
  const u64 n_manifests = keeps ? u64{2} * plan.sessions_max + kManifestsSpare +
                                      ceil_div(kept_tokens, plan.context_tokens)
                                : 0;
  u64 n_frames_wanted = (plan.groups_max + n_kept + kSpareRecords) * record.frames(frame_bytes) +
                        n_manifests * manifest.frames(frame_bytes);
  const u64 spare = spare_bytes(inputs, plan, shape->n_frames);
  // Without room on the disk they would push out what has no other copy.
  for (u32 n_orders = kv::kExtentOrdersMax; n_orders > 0; --n_orders) {
    split_extents(inputs, plan, frame_bytes, spare, n_orders, shape);
    const u64 n_frames_all =
        n_frames_wanted +
        extent_frames(spec, shape->extents, frame_bytes, plan.sessions_max, codebook.payload_bytes);
    const bool has_room =
        store::kFramesBegin + n_frames_all * frame_bytes <= config.store.quota_bytes;
    if (shape->extents.is_on() && has_room) {
      n_frames_wanted = n_frames_all;
      break;
    }
    shape->extents = {};
    shape->extents_bytes = 0;
  }
  split_cache(inputs, plan, spare, shape);
  const u64 n_frames_kept =
      keeps && frame_bytes == inputs.store_cut.frame_bytes ? inputs.store_cut.n_frames : 0;
  shape->disk_bytes =
      std::min(config.store.quota_bytes,
               store::kFramesBegin + std::max(n_frames_wanted, n_frames_kept) * frame_bytes);
  const u64 n_in_memory = keeps ? 0 : std::min(shape->n_frames, plan.groups_max);
  // By default sessions are kept as room allows; what was asked for is promised.
  const u64 n_needed = (plan.groups_max - n_in_memory + n_asked) * record.frames(frame_bytes) +
                       n_manifests * manifest.frames(frame_bytes);
  const u64 file_bytes = std::max(shape->disk_bytes, store::kFramesBegin);
  TARN_CHECK(check_room(config.store, frame_bytes, (file_bytes - store::kFramesBegin) / frame_bytes,
                        n_needed));
  shape->store = {.file_bytes = shape->disk_bytes,
                  .frame_bytes = frame_bytes,
                  .head_bytes_max =
                      std::max({record.head_bytes(), manifest.head_bytes(), codebook.head_bytes()}),
                  .ops_max = config.store.requests_max,
                  .write_bytes_per_day = config.store.daily_write_bytes,
                  .keeps = keeps};
  return {};
}

}  // namespace

// Each session's tail, what each session may begin in a step beside it, what a slice of a prefill
// fills, and pin sets to let the rest pass through.
u32 tier_frames_least(const Inputs& inputs, const Plan& plan) {
  const u64 slice = ceil_div(plan.rows_max, plan.group_shape.page_tokens);
  return static_cast<u32>(inputs.model->spec.n_cache_layers *
                          (u64{2} * plan.sessions_max + slice)) +
         kPinSetsLeast;
}

u32 tier_frames_for_all(const Inputs& inputs, const Plan& plan) {
  return std::max(plan.groups_max + 2 * kTierPinSetGroups, tier_frames_least(inputs, plan));
}

Result<TierShape> tier_shape(const Inputs& inputs, const Plan& plan, u32 n_frames) {
  TierShape shape{.n_frames = n_frames};
  TARN_CHECK(cut_store(inputs, plan, &shape));
  n_frames = shape.n_frames;
  const u32 n_frames_least = tier_frames_least(inputs, plan);
  const u32 n_to_pass = n_frames - std::min(n_frames, n_frames_least - kPinSetsLeast);
  shape.pin_set_groups = std::clamp(n_to_pass / kPinSetsLeast, 1u, kTierPinSetGroups);
  TARN_CHECK(store::store_bytes(shape.store));  // the limits are valid
  return shape;
}

}  // namespace tarn::plan
