// KV that no forward pass has computed, for measurements at a depth whose prefill would take hours.
// Only K and V are made up. RoPE, conversion, groups, commit and spilling are those of a step, and
// an index is made as after a prefill.
//
// Where the host makes the rows, and how they come to the ops, exec::HostRows knows.
#include <algorithm>
#include <atomic>

#include "platform/base/checked.h"
#include "runtime/lab/probe.h"

namespace tarn::lab {

using engine::Session;
using step::from_row;
using step::KvWatch;

namespace {

constexpr u32 kRowsPerTask = 16;

}  // namespace

Result<void> Probe::fill_kv(SessionIdx idx, std::span<const u32> ids, KvWatch rows) {
  const model::ModelSpec& spec = engine_.opened_.model.spec;
  const u64 d_kv = u64{spec.n_kv_heads} * spec.head_dim;
  const u32 rows_max = engine_.homes_.processor().host_rows().rows_max(2 * d_kv);
  if (rows_max == 0) {
    return fail({.status = Status::unsupported,
                 .hint = "rows of K and V are longer than this model's logits, which is where a "
                         "GPU's are filled in: use --device cpu (device.kind)"});
  }
  Session& s = engine_.opened_.sessions[idx];
  static std::atomic<u64> n_fills{0};
  // No other session's: the tokens do not tell this KV.
  s.client.root = {.low = ++n_fills, .high = ~u64{0}};
  TARN_CHECK(engine_.sessions_.feed(idx, ids));
  engine_.admission_.give();
  while (s.n_computable() > 0) {
    const Result<void> filled = fill_rows(s, std::min(s.n_computable(), rows_max), rows);
    if (filled) continue;
    s.give_up(filled.error(), engine_.opened_.log, engine_.opened_.scratch);
    return filled;
  }
  s.state = engine::SessionState::idle;
  s.generation.fed_ns = 0;
  return {};
}

Result<void> Probe::fill_rows(Session& s, u32 n, KvWatch source) {
  engine::Engine& e = engine_;
  const auto moved_before = e.kv_.cache().stats();
  e.current_.begin();
  e.executor_.clear();
  e.executor_.add({.sequence = &s.sequence, .session = s.idx},
                  s.tokens.ids.subspan(s.sequence.n_slots(), n), 0);
  TARN_CHECK(e.kv_.cache().reserve_frames(s.sequence, n));
  e.kv_.cache().plan_step({});  // nothing is read: no part of the KV is loaded
  e.executor_.forward_.backend->begin_step(e.executor_.batch_);
  exec::HostRows& host = e.homes_.processor().host_rows();
  const exec::HostRows::Made made = host.made(n);  // RoPE turns the queries too; nothing reads them
  const u32 first_slot = s.sequence.n_slots();
  const u32 n_tasks = static_cast<u32>(ceil_div(n, kRowsPerTask));
  for (u32 layer = 0; layer < e.opened_.model.spec.n_cache_layers; ++layer) {
    if (layer > 0) TARN_CHECK(fill_arrived());  // the rows are free again
    e.workers_.run(n_tasks, [&](u32 task_idx, u32) {
      const u32 row = task_idx * kRowsPerTask;
      source.rows(source.context, {.cache_layer = layer,
                                   .first_slot = first_slot + row,
                                   .n = std::min(kRowsPerTask, n - row),
                                   .k = from_row(made.host_k, row),
                                   .v = from_row(made.host_v, row)});
    });
    host.hand_over(made, n);
    e.executor_.forward_.backend->rope(made.q, made.k, n);
    e.executor_.forward_.backend->kv_append(e.executor_.batch_, layer, made.k, made.v);
  }
  TARN_CHECK(fill_arrived());
  s.sequence.commit(n);  // without a key: the tokens do not tell what is in these groups
  if (e.kv_.cache().is_moving()) e.kv_.cache().pump(0);
  engine::trace_disk(&e.current_.trace().disk, moved_before, e.kv_.cache().stats());
  e.status_.counters.add(e.current_.trace());
  return {};
}

// Waits for the GPU. An error ends the engine, as in a step.
Result<void> Probe::fill_arrived() {
  const Result<void> finished = engine_.executor_.forward_.backend->finish();
  if (!finished) engine_.current_.lose_device(finished.error());
  return finished;
}

void Probe::watch_kv(KvWatch watch) {
  engine_.executor_.batch_.kv_watch = engine_.homes_.processor().host_rows().shown_to(watch);
}

}  // namespace tarn::lab
