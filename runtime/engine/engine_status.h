// An engine's facts about itself: the trace of a step, sums over steps, and the parts it was opened
// with. Benches, tests and later the load controller read only this.
#pragma once

#include <array>

#include "platform/gpu/memory_probe.h"
#include "runtime/config/config.h"
#include "runtime/control/controller.h"
#include "runtime/engine/sessions/event_ring.h"
#include "runtime/exec/backend.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/method/selector.h"

namespace tarn::engine {

enum class Phase : u8 {
  layers,  // device: embedding, all layers, the last norm
  logits,  // device: the output product of the wanted rows
  sample,  // host: sampler, text, events
  // Rows that select, inside of layers; busy_ns is that of all workers together.
  select,          // the choice: codes of new tokens, scores, the best of them
  gather,          // copying what was chosen
  attend,          // attention over it
  cluster,         // making an index, before the layers
  cluster_beside,  // the same by the host, while a GPU computes the layers; inside of layers
  count,
};

struct PhaseTrace {
  u64 busy_ns = 0;  // of all its runs: logits and sample alternate when many rows want logits
  u32 n_runs = 0;
  u64 weight_bytes = 0;
  u64 kv_bytes = 0;
};

// The traffic between memory and the store, from the step's begin to its end. Selection reads
// bytes_of_slots = (far slots - cached ones) * slot bytes - bytes_here; this is bytes_sectors, and
// of bytes_read a sector more for each group, its record's head.
struct DiskTrace {
  // Asked of the disk: groups, extents and manifests, the heads of their records, and sectors that
  // a request takes along.
  u64 bytes_read = 0, bytes_written = 0;
  u64 wait_ns = 0;               // that the step stood still for them
  u64 n_hits = 0, n_waited = 0;  // groups that attention found in memory, or waited for
  // Slots of rows that select, in groups behind the sinks and before the local window, a head each.
  u64 n_far_slots = 0;
  u64 n_cached_slots = 0;                     // of them, in the cache
  u64 n_sector_reads = 0;                     // groups of which sectors were read
  u64 n_extent_reads = 0;                     // requests of extents
  u64 bytes_sectors = 0, bytes_of_slots = 0;  // of both, and of what was wanted of them
  u64 bytes_here = 0;                         // wanted of groups that were in memory
};

struct StepTrace {
  u64 start_ns = 0;
  u64 end_ns = 0;
  u32 n_rows = 0;
  u32 n_prefill_rows = 0;
  u32 n_decode_rows = 0;
  u32 n_logit_rows = 0;
  u32 n_sequences = 0;
  u32 n_tokens_out = 0;
  u32 n_waiting = 0;        // sessions whose rows wait for an index, or ended while one was made
  bool abandoned = false;   // all its sessions were cancelled while it ran: its rows do not count
  u32 n_cluster_units = 0;  // of clustering, done in this step
  KvReads kv_reads{};
  u64 n_slots_chosen = 0;  // attended to by rows that select, of all layers and KV heads
  DiskTrace disk{};
  std::array<PhaseTrace, static_cast<u64>(Phase::count)> phases{};
};

struct EngineCounters {
  u64 load_ns = 0;
  u64 n_steps = 0;
  u64 n_prefill_rows = 0, n_decode_rows = 0;
  u64 prefill_ns = 0, decode_ns = 0;  // steps with, and without, prefill rows
  u64 weight_bytes = 0, kv_bytes = 0;
  KvReads kv_reads{};
  DiskTrace disk{};
  // Adds a step.
  void add(const StepTrace& step);
};

struct EngineStatus {
  // Fixed from open() to close().
  bool on_gpu = false;
  const char* device = "cpu";
  const char* gpu_name = "";
  const char* isa = "";
  const char* io = "";
  const char* select = "";
  // The mark that `tarn verify` writes down for this model and these settings. The weights' hash is
  // in it where a mark is configured, or sessions are kept.
  VerifyMark select_mark{};
  bool select_verified = false;  // exact, or select.verified is that mark
  // The share of chunks' tokens that is computed anew where a request leaves it to the box: 1
  // without a record of `tarn verify --reuse`.
  f32 blend_share = 1;
  bool model_verified = false;  // the file's SHA-256 is model.sha256
  bool memory_locked = false;
  u64 driver_bytes = 0;        // a GPU's driver's, as measured before READY
  MemoryProbe memory_probe{};  // how fast the GPU reads; zeros on the CPU

  // As of now.
  EngineCounters counters{};
  u32 n_sessions = 0;
  u32 n_running = 0, n_waiting = 0;  // of them
  u32 groups_free = 0;
  u64 n_stripes_kept = 0;   // stripes of KV that attention found on the device, with tiers
  bool model_lost = false;  // rows of the embedding could not be read, or are others by now
  const char* store_mode = "";
  struct StoreUse {
    u64 bytes = 0, bytes_max = 0, n_evictions = 0;
  };
  StoreUse store{};
  bool sessions_may_be_lost = false;
  kv::KvStats kv{};
};

// Returns what `tarn verify --reuse` writes down for this model and share. What is left of a chunk
// behind its last whole page is computed in any case.
VerifyMark blend_mark(const model::Weights& weights, kernels::KvType kv_type, u32 page_tokens,
                      u32 recompute_percent);

// Adds what a step's selection, and its disk, did to its trace.
void trace_selection(StepTrace* trace, const method::StepParts::Spent& spent,
                     const exec::Backend::Traffic& traffic);
void trace_disk(DiskTrace* disk, const kv::KvStats& before, const kv::KvStats& after);
// Tells the controller what it learns of a step: reads of the disk, and the time of prompts that
// were computed alone, with rows enough that it is theirs.
void note_costs(const StepTrace& trace, std::span<const step::Run> runs, const kv::KvStats& before,
                const kv::KvStats& after, control::Controller* controller);

}  // namespace tarn::engine
