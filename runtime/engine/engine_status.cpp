#include "runtime/engine/engine_status.h"

#include <algorithm>
#include <string_view>

#include "platform/power/power.h"
#include "runtime/engine/engine.h"
#include "runtime/method/method.h"
#include "runtime/reuse/blend/blend.h"
#include "runtime/reuse/selection_key.h"

namespace tarn::engine {
namespace {

// Returns the mark that a record of `tarn verify` holds for: the tensors' bytes, and all that
// decides what a step reads, or transplants. index_delay_tokens says only when an index begins to
// serve, and trials serve at once.
VerifyMark mark_of(const model::Weights& weights, u64 a, u64 b) {
  const std::array<u64, 4> what = {weights.content_hash[0], weights.content_hash[1], a, b};
  const std::array<u8, 32> no_entropy{};  // a mark is the same on every machine
  const store::Key key =
      store::root_key(store::make_secret(no_entropy), std::as_bytes(std::span(what)));
  VerifyMark mark{};
  for (u32 i = 0; i < 32; ++i) {
    const u64 half = i < 16 ? key.high : key.low;
    mark[i] = "0123456789abcdef"[half >> (60 - i % 16 * 4) & 15];
  }
  return mark;
}

VerifyMark select_mark(SelectConfig config, const model::Weights& weights,
                       kernels::KvType kv_type) {
  config.index_delay_tokens = 1;
  const store::Key selection =
      reuse::selection_key(config, method::kSelectionId, static_cast<u32>(kv_type));
  return mark_of(weights, selection.high, selection.low);
}

constexpr u64 DiskTrace::*kDiskFigures[] = {
    &DiskTrace::bytes_read,     &DiskTrace::bytes_written,  &DiskTrace::wait_ns,
    &DiskTrace::n_hits,         &DiskTrace::n_waited,       &DiskTrace::n_far_slots,
    &DiskTrace::n_cached_slots, &DiskTrace::n_sector_reads, &DiskTrace::n_extent_reads,
    &DiskTrace::bytes_sectors,  &DiskTrace::bytes_of_slots, &DiskTrace::bytes_here};
static_assert(sizeof(DiskTrace) == std::size(kDiskFigures) * sizeof(u64));

EngineStatus::StoreUse store_use(const store::Store& store) {
  const store::RecordIndex& index = store.index();
  const u64 frame_bytes = store.stats().frame_bytes;
  return {.bytes = (index.n_frames() - index.n_free()) * frame_bytes,
          .bytes_max = index.n_frames() * frame_bytes,
          .n_evictions = index.n_evicted()};
}

}  // namespace

VerifyMark blend_mark(const model::Weights& weights, kernels::KvType kv_type, u32 page_tokens,
                      u32 recompute_percent) {
  return mark_of(weights, u64{reuse::kBlendId} << 32 | static_cast<u32>(kv_type),
                 u64{page_tokens} << 32 | recompute_percent);
}

void Engine::note_opened(const Config& config) {
  const ReuseConfig& reuse = config.reuse;
  const SelectConfig& select = opened_.select;
  const exec::ProcessorFacts facts = homes_.processor().facts();
  status_.on_gpu = facts.on_gpu;
  status_.device = facts.device;
  status_.gpu_name = facts.gpu_name;
  status_.isa = executor_.isa();
  status_.select = method::method_of(select).name;
  status_.select_mark = select_mark(select, opened_.model.weights, opened_.kv_type);
  status_.select_verified =
      select.is_full() || (select.lab_method == nullptr && status_.select_mark == select.verified);
  const bool is_blend_verified =
      opened_.plan.n_blends > 0 &&
      reuse.verified == blend_mark(opened_.model.weights, opened_.kv_type,
                                   opened_.plan.group_shape.page_tokens, reuse.recompute_percent);
  status_.blend_share = is_blend_verified ? static_cast<f32>(reuse.recompute_percent) / 100 : 1;
  opened_.least_share = status_.blend_share;
  const PowerState power = power_limits();
  const std::string_view measured = config.box.power_mode.data(), now = power.mode.data();
  if (!measured.empty() && measured != now) {
    opened_.log.warning("box.profile is of power mode \"%s\", this is \"%s\": tarn calibrate again",
                        config.box.power_mode.data(), power.mode.data());
  }
  const u32 n_layers = opened_.model.spec.n_cache_layers;
  const BoxConfig box = homes_.home().costs_from(config.box);
  loads_.controller().init({.costs = control::costs_of(box, n_layers, opened_.plan.rows_max),
                            .is_adaptive = config.quality == QualityChoice::adaptive,
                            .page_tokens = opened_.plan.group_shape.page_tokens,
                            .page_bytes = n_layers * opened_.plan.group_shape.group_bytes(),
                            .page_requests = kv::kLoadRequests * n_layers});
  status_.memory_locked = arena_.locked();
  status_.driver_bytes = facts.driver_bytes;
  status_.memory_probe = facts.probe;
}

EngineStatus Engine::status() const {
  EngineStatus now = status_;
  for (const Session& s : opened_.sessions) {
    now.n_running += u32{s.run.is_admitted};
    now.n_waiting += u32{s.waits()};
  }
  now.n_sessions = static_cast<u32>(std::ranges::count_if(
      opened_.sessions, [](const Session& s) { return s.state != SessionState::free; }));
  now.model_lost = runner_.has_lost_model();
  now.groups_free = kv_.cache().pool().groups_free();
  now.n_stripes_kept = homes_.processor().facts().n_stripes_kept;
  now.store_mode = kv_.cache().tiers().store.state_name();
  now.store = store_use(kv_.cache().tiers().store.store());
  now.sessions_may_be_lost =
      opened_.plan.tiers.store.keeps && kv_.cache().tiers().store.has_lost_records();
  now.kv = kv_.cache().stats();
  return now;
}

void trace_selection(StepTrace* trace, const method::StepParts::Spent& spent,
                     const exec::Backend::Traffic& traffic) {
  trace->n_cluster_units = spent.n_units;
  if (spent.n_units == 0) trace->phases[static_cast<u64>(Phase::cluster)] = {};
  trace->n_slots_chosen = spent.n_slots;
  trace->disk.n_far_slots = spent.n_far;
  trace->disk.n_cached_slots = spent.n_cached;
  if (spent.n_slots == 0) return;
  const auto put = [&](Phase kind, u64 busy_ns, u64 kv_bytes) {
    trace->phases[static_cast<u64>(kind)] = {.busy_ns = busy_ns, .n_runs = 1, .kv_bytes = kv_bytes};
  };
  put(Phase::select, spent.select_ns, 0);
  put(Phase::gather, spent.gather_ns + traffic.gather_ns, spent.kv_bytes);
  put(Phase::attend, traffic.attend_ns, 0);
}

void trace_disk(DiskTrace* disk, const kv::KvStats& before, const kv::KvStats& after) {
  const u64 bytes_extents = after.extents.bytes_read - before.extents.bytes_read;
  *disk = {
      .bytes_read = after.store.bytes_read - before.store.bytes_read,
      .bytes_written = after.store.bytes_written - before.store.bytes_written,
      .wait_ns = after.moved.wait_ns - before.moved.wait_ns + after.extents.wait_ns -
                 before.extents.wait_ns,
      .n_hits = after.moved.n_hits - before.moved.n_hits,
      .n_waited = after.moved.n_waited - before.moved.n_waited,
      .n_far_slots = disk->n_far_slots,
      .n_cached_slots = disk->n_cached_slots,
      .n_sector_reads = after.moved.n_gather_reads - before.moved.n_gather_reads,
      .n_extent_reads = after.extents.n_reads - before.extents.n_reads,
      .bytes_sectors = after.moved.bytes_gathered - before.moved.bytes_gathered + bytes_extents,
      .bytes_of_slots = after.moved.bytes_gathered_used - before.moved.bytes_gathered_used +
                        after.extents.bytes_used - before.extents.bytes_used,
      .bytes_here = after.moved.bytes_gathered_here - before.moved.bytes_gathered_here};
}

void note_costs(const StepTrace& trace, std::span<const step::Run> runs, const kv::KvStats& before,
                const kv::KvStats& after, control::Controller* controller) {
  if (!controller->knows_costs()) return;
  const auto seconds = [](u64 ns) { return static_cast<f64>(ns) * 1e-9; };
  const kv::ReadTimes &now = after.moved.reads, &was = before.moved.reads;
  controller->note_reads(static_cast<f64>(now.n - was.n), static_cast<f64>(now.bytes - was.bytes),
                         seconds(now.least_ns - was.least_ns), seconds(now.most_ns - was.most_ns));
  if (controller->wants_power(seconds(trace.end_ns))) {
    const PowerState power = power_limits();
    u64 number = u64{power.gpu_mhz_max} << 16 | power.n_throttling;
    for (const char c : std::string_view(power.mode.data()))
      number = 31 * number + static_cast<u8>(c);
    controller->note_power(number);
  }
  const bool is_prompt = trace.n_decode_rows == 0 && trace.n_cluster_units == 0;
  if (!is_prompt || trace.abandoned) return;
  u32 n_rows = 0;
  for (const step::Run& run : runs) {
    const u32 end = run.sequence->n_slots();
    const bool is_own = run.part == step::RunPart::own && run.n_slots == run.n_rows;
    if (!is_own || run.state != step::RunState::runs || end < run.n_rows) return;
    n_rows += run.n_rows;
  }
  if (n_rows < control::Controller::kRowsSeen) return;
  for (const step::Run& run : runs)
    controller->note_prefill(run.sequence->n_slots() - run.n_rows, run.sequence->n_slots());
  const u64 step_ns = trace.end_ns - trace.start_ns;
  controller->note_prefill_time(seconds(step_ns - std::min(trace.disk.wait_ns, step_ns)));
}

void EngineCounters::add(const StepTrace& step) {
  for (u64 DiskTrace::*const figure : kDiskFigures) disk.*figure += step.disk.*figure;
  if (step.n_rows == 0 && step.n_waiting > 0) decode_ns += step.end_ns - step.start_ns;
  if (step.n_rows == 0 || step.abandoned) return;
  ++n_steps;
  n_prefill_rows += step.n_prefill_rows;
  n_decode_rows += step.n_decode_rows;
  kv_reads.add(step.kv_reads);
  (step.n_prefill_rows > 0 ? prefill_ns : decode_ns) += step.end_ns - step.start_ns;
  for (const PhaseTrace& phase : step.phases) {
    weight_bytes += phase.weight_bytes;
    kv_bytes += phase.kv_bytes;
  }
}

}  // namespace tarn::engine
