// What an engine tells of itself, copied in one call: the parts it was opened with, and sums over
// its steps.
#pragma once

#include "platform/gpu/memory_probe.h"
#include "runtime/config/config.h"
#include "runtime/engine/event_ring.h"
#include "runtime/engine/step_trace.h"
#include "runtime/exec/backend.h"
#include "runtime/kv/kv_cache.h"
#include "runtime/method/selector.h"

namespace tarn::engine {

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
  // What `tarn verify` writes down for this model and these settings. The weights' hash is in it
  // where select.verified is not empty, or sessions are kept.
  SelectMark select_mark{};
  bool select_verified = false;  // exact, or select.verified is that mark
  bool memory_locked = false;
  u32 n_workers = 0;
  u32 sessions_max = 0;
  u32 groups_max = 0;
  u64 driver_bytes = 0;        // a GPU's driver's, as measured before READY
  MemoryProbe memory_probe{};  // how fast the GPU reads; zeros on the CPU

  // As of now.
  EngineCounters counters{};
  u32 n_sessions = 0;
  u32 groups_free = 0;
  u64 n_chunks_kept = 0;  // chunks of KV that attention found on the device, with tiers
  bool has_tiers = false;
  const char* store_mode = "";
  bool sessions_may_be_lost = false;
  kv::KvStats kv{};
};

// What a step's selection, and its disk, add to its trace.
void trace_selection(StepTrace* trace, const method::StepParts::Spent& spent,
                     const exec::Backend::Traffic& traffic);
void trace_disk(DiskTrace* disk, const kv::KvStats& before, const kv::KvStats& after);

}  // namespace tarn::engine
