// What a step did, in a fixed struct: the bench, the tests and later the load controller read only
// this.
#pragma once

#include <array>

#include "platform/base/types.h"

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
const char* phase_name(Phase kind);

struct PhaseTrace {
  u64 start_ns = 0;  // of the first run in this step
  u64 busy_ns = 0;   // of all its runs: logits and sample alternate when many rows want logits
  u32 n_runs = 0;
  u64 weight_bytes = 0;
  u64 kv_bytes = 0;
};

// What passed between memory and the store, from the step's begin to its end. Selection reads
// bytes_of_slots = (far slots - cached ones) * slot bytes - bytes_here; this is bytes_sectors, and
// of bytes_read a sector more for each group, its record's head.
struct DiskTrace {
  // Asked of the disk: groups, extents and manifests, the heads of their records, and sectors that
  // a request takes along.
  u64 bytes_read = 0, bytes_written = 0;
  u64 wait_ns = 0;               // that the step stood still for them
  u64 n_hits = 0, n_waited = 0;  // groups that attention found in memory, or waited for
  // Of rows that select: slots of groups behind the sinks and before the local window, a head each.
  u64 n_far_slots = 0;
  u64 n_cached_slots = 0;                     // of them, in the cache
  u64 n_sector_reads = 0;                     // groups of which sectors were read
  u64 n_extent_reads = 0;                     // requests of extents
  u64 bytes_sectors = 0, bytes_of_slots = 0;  // of both, and of what was wanted of them
  u64 bytes_here = 0;                         // wanted of groups that were in memory
};

struct StepTrace {
  u64 step_idx = 0;
  u64 start_ns = 0;
  u64 end_ns = 0;
  u32 n_rows = 0;
  u32 n_prefill_rows = 0;
  u32 n_decode_rows = 0;
  u32 n_logit_rows = 0;
  u32 n_sequences = 0;
  u32 n_tokens_out = 0;
  u32 n_waiting = 0;       // sessions whose rows wait for an index, or ended while one was made
  bool abandoned = false;  // all its sessions were cancelled while it ran: its rows do not count
  u32 groups_free = 0;
  u32 n_cluster_units = 0;  // of clustering, done in this step
  u64 n_slots_chosen = 0;   // attended to by rows that select, of all layers and KV heads
  DiskTrace disk{};
  std::array<PhaseTrace, static_cast<u64>(Phase::count)> phases{};
};

}  // namespace tarn::engine
