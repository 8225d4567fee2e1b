// KV that no forward pass has computed, for measurements at a depth whose prefill would take hours.
// All that comes behind K and V is the forward pass's own: RoPE at the real position, the kernel
// that converts, the slots and their groups, commit, seal, and the mover that spills. What follows
// from the KV, as a selection's index, is made by whoever asks for it, as behind a prefill.
#include <algorithm>

#include "platform/base/checked.h"
#include "runtime/engine/engine.h"

namespace tarn::engine {
namespace {

constexpr u32 kRowsPerTask = 16;

}  // namespace

Result<void> Engine::fill_kv(SessionIdx idx, std::span<const u32> ids, KvWatch rows) {
  if (on_gpu()) {
    return fail({.status = Status::unsupported,
                 .hint = "KV is filled in on the CPU only: use --device cpu (device.kind)"});
  }
  TARN_CHECK(feed(idx, ids));
  Session& s = session(idx);
  while (s.n_computable() > 0) {
    const Result<void> filled = fill_rows(s, std::min(s.n_computable(), plan_.rows_max), rows);
    if (filled) continue;
    give_up(s, filled.error());
    return filled;
  }
  s.state = SessionState::idle;
  s.fed_ns = 0;
  return {};
}

Result<void> Engine::fill_rows(Session& s, u32 n, KvWatch source) {
  const KvStats moved_before = kv_stats();
  trace_ = StepTrace{.step_idx = counters_.n_steps, .start_ns = clock_->now_ns()};
  drop_rows();
  add_rows(s, n);
  step_state_.runs = runs_.first(n_runs_);
  if (kv_stream_.is_on()) {
    kv_stream_.begin_step();
    TARN_CHECK(kv_stream_.make_writable(s.sequence, n));
    kv_stream_.drop_plan();  // nothing is read: no part of the KV is wanted back
  }
  backend_->begin_step(step_state_);
  const u64 d_kv = u64{spec_.n_kv_heads} * spec_.head_dim;
  const Rows q = buffers_.qkv;  // turned along with K, and not looked at
  const Rows k{q.data + u64{spec_.n_heads} * spec_.head_dim, q.stride};
  const Rows v{k.data + d_kv, q.stride};
  const u32 first_slot = s.sequence.n_slots();
  const u32 n_tasks = static_cast<u32>(ceil_div(n, kRowsPerTask));
  for (u32 layer = 0; layer < spec_.n_cache_layers; ++layer) {
    workers_.run(n_tasks, [&](u32 task_idx, u32) {
      const u32 row = task_idx * kRowsPerTask;
      source.rows(source.context, {.cache_layer = layer,
                                   .first_slot = first_slot + row,
                                   .n = std::min(kRowsPerTask, n - row),
                                   .k = from_row(k, row),
                                   .v = from_row(v, row)});
    });
    backend_->rope(q, k, n);
    backend_->kv_append(step_state_, layer, k, v);
  }
  s.sequence.commit(n);  // without a name: their tokens do not tell what is in these groups
  if (kv_stream_.is_moving()) kv_stream_.pump(0);
  trace_disk(moved_before);
  trace_.n_rows = 0;  // none was computed
  count_step();
  return {};
}

}  // namespace tarn::engine
