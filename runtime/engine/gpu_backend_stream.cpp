// Attention on a GPU over KV that lies in the host's memory and on disk: a layer's groups come in
// chunks, or the host gathers what a row chose.
#include <algorithm>

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/engine/gpu_backend.h"
#include "runtime/engine/gpu_memory.h"
#include "runtime/engine/kv_stream.h"
#include "runtime/engine/selector.h"
#include "runtime/plan/gpu_shape.h"

namespace tarn::engine {
namespace {

constexpr u64 kNapNs = 20'000;

}  // namespace

// Where the groups of a chunk and those of gathered slots lie, once.
void GpuBackend::place_stream() {
  const GpuStreamArgs& mine = args_.stream;
  auto* address = reinterpret_cast<u64*>(mine.host_tables);
  for (u32 i = 0; i < mine.shape.chunk_groups; ++i) {
    *address++ = reinterpret_cast<u64>(mine.staged + i * mine.shape.group_bytes);
  }
  for (u32 i = 0; i < mine.shape.gathered_pages; ++i) {  // of the first head
    *address++ = reinterpret_cast<u64>(mine.gathered + i * args_.page_bytes);
  }
  const u32 n_pieces = mine.shape.n_kept * args_.spec->n_cache_layers;
  for (u32 piece = 0; piece < n_pieces; ++piece) {
    for (u32 i = 0; i < mine.shape.chunk_groups; ++i) {
      *address++ =
          reinterpret_cast<u64>(mine.memory->kept_chunk(piece) + i * mine.shape.group_bytes);
    }
  }
  kept_.init(mine.shape.kept, mine.kept);
  const u64 n_addresses = mine.shape.n_addresses(args_.spec->n_cache_layers);
  send(mine.tables, mine.host_tables, n_addresses * sizeof(u64));
}

// Where the step's rows of a run are written: frames, as the device sees them.
void GpuBackend::send_tails(const step::Batch& batch, const step::Run& run) {
  TARN_ASSERT(run.session < args_.sessions_max);
  const u32 n_layers = args_.spec->n_cache_layers;
  const u32 begin = batch.slots[run.row_begin] / args_.page_tokens;
  const u32 end = batch.slots[run.row_begin + run.n_rows - 1] / args_.page_tokens + 1;
  TARN_ASSERT(end <= args_.pages_max);
  const u64 first = (u64{run.session} * args_.pages_max + begin) * n_layers;
  u64* address = args_.host_groups + first;
  for (u32 group = begin; group < end; ++group) {
    for (u32 layer = 0; layer < n_layers; ++layer) {
      const u64 at_host = run.sequence->group_address(layer, group);
      *address++ =
          at_host - reinterpret_cast<u64>(args_.stream.frames) + args_.stream.frames_on_device;
    }
  }
  send(args_.groups + first, args_.host_groups + first, u64{end - begin} * n_layers);
}

void GpuBackend::attend_streamed(const step::Batch& batch, u32 cache_layer, Rows q, Rows out,
                                 bool leaves_acts) {
  KvStream& kv = *args_.stream.kv;
  const u64 row_bytes = u64{args_.spec->n_heads} * args_.spec->head_dim * sizeof(f32);
  for (const step::Run& run : batch.runs) {
    const Attended attended{run, cache_layer, q, out, leaves_acts};
    if (!kv.failed(run.session)) {
      run.selects ? attend_fetched(attended) : attend_run(batch, attended);
    }
    for (u32 row = run.row_begin; row < run.row_begin + run.n_rows; ++row) {
      if (!run.selects) traffic_.kv_bytes += batch.visible[row] * token_bytes();
      if (!kv.failed(run.session)) continue;
      // Nobody will look at this row, and nothing in it may disturb the others.
      args_.device->fill(DevicePtr<f32>(from_row(out, row).data).as<std::byte>(), 0, row_bytes,
                         stream_);
      progress_.note();
    }
  }
}

// All slots of a run's rows, a chunk at a time; the state between two is each row's.
void GpuBackend::attend_run(const step::Batch& batch, const Attended& a) {
  const GpuStreamArgs& mine = args_.stream;
  const model::ModelSpec& spec = *args_.spec;
  const step::Run& run = a.run;
  const u64 d_out = u64{spec.n_heads} * spec.head_dim;
  const u64 state_elems = u64{spec.n_heads} * (u64{spec.head_dim} + 2);
  const u32 n_slots = batch.visible[run.row_begin + run.n_rows - 1];
  const u32 n_groups = static_cast<u32>(ceil_div(n_slots, args_.page_tokens));
  if (mine.selector != nullptr && mine.selector->wants_queries()) {
    if (!bring_query(a)) return;
    mine.selector->note_query(run.session, a.cache_layer, mine.host_query);
  }
  for (u32 begin = 0; begin < n_groups; begin += mine.shape.chunk_groups) {
    const Chunk chunk = chunk_of(run, a.cache_layer, begin, n_groups);
    const bool is_there = chunk.kept && kept_.has(*chunk.kept, *run.sequence);
    n_chunks_kept_ += is_there;
    if (!is_there && !stage(run, a.cache_layer, chunk)) return;
    const u32 span_begin = begin * args_.page_tokens / kernels::kGpuSpanSlots;
    const u32 n_here = std::min(n_slots - begin * args_.page_tokens, kernels::kGpuMergeSlots);
    for (u32 at = 0; at < run.n_rows; at += plan::kGpuAttnRowsMax) {
      const u32 row = run.row_begin + at;
      kernels::GpuPages staged = pages_at(chunk.table_at, a.cache_layer, row);
      staged.groups -= begin;  // the first of its entries is the chunk's first group
      attend_part({.pages = staged,
                   .q = from_row(a.q, row),
                   .out = from_row(a.out, row),
                   .visible = state<u32>(state_.visible) + row,
                   .quantized = a.leaves_acts ? acts_from(row, d_out) : kernels::GpuQuantized{},
                   .states = mine.states + row * state_elems,
                   .n_rows = std::min(run.n_rows - at, plan::kGpuAttnRowsMax),
                   .span_begin = span_begin,
                   .n_spans = plan::gpu_spans(n_here)});
    }
  }
}

GpuBackend::Chunk GpuBackend::chunk_of(const step::Run& run, u32 cache_layer, u32 begin,
                                       u32 n_groups) {
  const GpuStreamArgs& mine = args_.stream;
  const u32 chunk_idx = begin / mine.shape.chunk_groups;
  Chunk chunk{.begin = begin,
              .end = std::min(begin + mine.shape.chunk_groups, n_groups),
              .memory = mine.staged,
              .table_at = 0,
              .kept = std::nullopt};
  if (mine.shape.n_kept == 0 || !kept_.is_full(chunk_idx, *run.sequence)) return chunk;
  chunk.kept = kept_.piece(run.session, cache_layer, chunk_idx);
  if (!chunk.kept) return chunk;
  chunk.memory = mine.memory->kept_chunk(*chunk.kept);
  chunk.table_at = mine.shape.kept_at() + u64{*chunk.kept} * mine.shape.chunk_groups;
  return chunk;
}

u32 GpuBackend::n_kept_groups(const step::Run& run) const {
  return args_.stream.shape.n_kept == 0 ? 0 : kept_.n_kept_groups(run.session, *run.sequence);
}

// A chunk's groups to where attention takes them. False where the run has failed, or the device is
// lost.
bool GpuBackend::stage(const step::Run& run, u32 cache_layer, const Chunk& chunk) {
  const GpuStreamArgs& mine = args_.stream;
  const u64 payload_bytes = args_.page_bytes * args_.spec->n_kv_heads;
  if (chunk.kept) kept_.forget(*chunk.kept);  // until all of it has come
  for (u32 at = chunk.begin; at < chunk.end;) {
    const u32 n = mine.kv->pin(run, cache_layer, at, chunk.end);
    if (n == 0) return false;
    for (u32 group = at; group < at + n; ++group) {
      const auto* from =
          reinterpret_cast<const std::byte*>(run.sequence->group_address(cache_layer, group));
      auto* to = reinterpret_cast<std::byte*>(chunk.memory +
                                              (group - chunk.begin) * mine.shape.group_bytes);
      args_.device->copy_in(DeviceBytes(to), {from, payload_bytes}, stream_);
      progress_.note();
    }
    const bool has_come = wait_for_host_part();
    mine.kv->unpin(run, cache_layer, at, at + n);
    if (!has_come) return false;
    at += n;
  }
  if (chunk.kept) kept_.put(*chunk.kept, *run.sequence);
  return true;
}

// Of the run's last row.
bool GpuBackend::bring_query(const Attended& a) {
  const u32 row = a.run.row_begin + a.run.n_rows - 1;
  const u64 n = u64{args_.spec->n_heads} * args_.spec->head_dim;
  args_.device->copy_out(std::as_writable_bytes(std::span(args_.stream.host_query, n)),
                         DevicePtr<f32>(from_row(a.q, row).data).as<std::byte>(), stream_);
  return wait_for_host_part();
}

// A row that selects: the host chooses by its copy of the query and gathers; K and V of a head's
// slots come to pages of its own, one head behind the other.
void GpuBackend::attend_fetched(const Attended& a) {
  const GpuStreamArgs& mine = args_.stream;
  if (!bring_query(a)) return;  // and what was copied before may be overwritten
  mine.selector->note_query(a.run.session, a.cache_layer, mine.host_query);
  const Result<Selector::LayerKv> fetched = mine.selector->fetch({.session = a.run.session,
                                                                  .sequence = a.run.sequence,
                                                                  .cache_layer = a.cache_layer,
                                                                  .q = mine.host_query});
  if (!fetched) return mine.kv->note_failure(a.run.session, fetched.error());
  const u64 slot_bytes = args_.page_bytes / args_.page_tokens;
  const u64 head_bytes = mine.shape.gathered_pages * args_.page_bytes;
  for (u32 head = 0; head < args_.spec->n_kv_heads; ++head) {
    const u64 n_bytes = fetched->n_slots[head] * slot_bytes;
    TARN_ASSERT(n_bytes <= head_bytes);
    args_.device->copy_in(
        DeviceBytes(reinterpret_cast<std::byte*>(mine.gathered + head * head_bytes)),
        {reinterpret_cast<const std::byte*>(fetched->bytes[head]), n_bytes}, stream_);
    progress_.note();
  }
  attend_gathered(a, fetched->n_slots);
}

void GpuBackend::attend_gathered(const Attended& a, std::span<const u32> n_slots) {
  const GpuStreamArgs& mine = args_.stream;
  const model::ModelSpec& spec = *args_.spec;
  const u32 n = std::ranges::max(n_slots);
  const u64 visible_at = mine.shape.n_addresses(spec.n_cache_layers) * sizeof(u64);
  auto* host_visible = reinterpret_cast<u32*>(mine.host_tables + visible_at);
  auto* visible = reinterpret_cast<u32*>(mine.tables + visible_at);
  std::ranges::copy(n_slots, host_visible);
  send(visible, host_visible, n_slots.size());

  const u32 row = a.run.row_begin;
  const u64 d_out = u64{spec.n_heads} * spec.head_dim;
  kernels::GpuPages gathered = pages_at(mine.shape.chunk_groups, a.cache_layer, row);
  gathered.page_stride = mine.shape.gathered_pages * args_.page_bytes;
  for (u32 span = 0; span * kernels::kGpuSpanSlots < n; span += kernels::kGpuMergeSpans) {
    attend_part({.pages = gathered,
                 .q = from_row(a.q, row),
                 .out = from_row(a.out, row),
                 .visible = visible,
                 .visible_stride = 1,
                 .quantized = a.leaves_acts ? acts_from(row, d_out) : kernels::GpuQuantized{},
                 .states = mine.states,
                 .n_rows = 1,
                 .span_begin = span,
                 .n_spans = std::min(plan::gpu_spans(n) - span, kernels::kGpuMergeSpans)});
  }
}

// Groups whose addresses stand in the stream's own table, whatever the row's session.
kernels::GpuPages GpuBackend::pages_at(u64 table_at, u32 cache_layer, u32 row) const {
  kernels::GpuPages listed = pages(cache_layer, row);
  listed.groups = reinterpret_cast<u8* const*>(args_.stream.tables) + table_at;
  listed.table_stride = 0;
  listed.group_stride = 1;
  return listed;
}

// Until the GPU has come to where the host goes on; meanwhile the disk's work goes on, too.
bool GpuBackend::wait_for_host_part() {
  Device& device = *args_.device;
  device.record(host_part_, stream_);
  u64 moved_ns = args_.clock->now_ns();
  while (true) {
    const u64 now_ns = args_.clock->now_ns();  // what the host's part below takes is none of it
    const Result<bool> is_done = device.is_done(host_part_);
    if (is_done && *is_done) return true;
    if (progress_.advance()) moved_ns = now_ns;
    if (!is_done || now_ns - moved_ns > kGpuWaitNsMax) {
      device.give_up();  // finish() tells
      return false;
    }
    if (args_.stream.kv->is_moving()) {
      args_.stream.kv->pump(kNapNs);
    } else {
      args_.clock->nap_ns(kNapNs);
    }
  }
}

}  // namespace tarn::engine
