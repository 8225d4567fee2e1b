// KV that no forward pass has computed, for measurements at a depth whose prefill would take hours.
// Only K and V are made up. RoPE, conversion, groups, commit and spilling are those of a step, and
// an index is made as after a prefill.
//
// On a GPU the host makes the rows in the buffer of a step's logits, which no op reads between
// steps, and copies them to the ops' input. Rows that a step computed come back by the same buffer.
#include <algorithm>
#include <atomic>

#include "platform/base/checked.h"
#include "runtime/lab/probe.h"

namespace tarn::lab {

using engine::Session;
using step::from_row;
using step::KvRows;
using step::KvWatch;
using step::Rows;

namespace {

constexpr u32 kRowsPerTask = 16;

}  // namespace

struct Probe::FillPlaces {
  Rows q, k, v;         // for the ops, in the backend's space
  Rows made_k, made_v;  // on the host
};

// Rows of so many f32 that the host's side of a GPU holds at a time.
u32 Probe::host_rows_max(u64 width) const {
  if (!engine_.status_.on_gpu) return engine_.opened_.plan.rows_max;  // they are made in place
  const u64 n =
      engine_.opened_.plan.logit_rows_max * u64{engine_.opened_.model.spec.n_vocab} / width;
  return static_cast<u32>(std::min<u64>(n, engine_.opened_.plan.rows_max));
}

Result<void> Probe::fill_kv(SessionIdx idx, std::span<const u32> ids, KvWatch rows) {
  const model::ModelSpec& spec = engine_.opened_.model.spec;
  const u64 d_kv = u64{spec.n_kv_heads} * spec.head_dim;
  const u32 rows_max = host_rows_max(2 * d_kv);
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

// Where the rows of a step lie for its ops, and where they are made.
Probe::FillPlaces Probe::fill_places(u32 n) const {
  const model::ModelSpec& spec = engine_.opened_.model.spec;
  const u64 d_q = u64{spec.n_heads} * spec.head_dim;
  const u64 d_kv = u64{spec.n_kv_heads} * spec.head_dim;
  const Rows qkv = engine_.executor_.forward_.buffers.qkv;
  if (!engine_.status_.on_gpu) {
    const Rows k{qkv.data + d_q, qkv.stride}, v{k.data + d_kv, qkv.stride};
    return {.q = qkv, .k = k, .v = v, .made_k = k, .made_v = v};
  }
  // K and V of all rows side by side behind the queries of all, so that one copy takes them.
  const Rows k{qkv.data + n * d_q, 2 * d_kv},
      made{engine_.executor_.args_.host_logits.data, 2 * d_kv};
  return {.q = {qkv.data, d_q},
          .k = k,
          .v = {k.data + d_kv, k.stride},
          .made_k = made,
          .made_v = {made.data + d_kv, made.stride}};
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
  const FillPlaces at = fill_places(n);  // RoPE turns the queries too; nothing reads them
  const u32 first_slot = s.sequence.n_slots();
  const u32 n_tasks = static_cast<u32>(ceil_div(n, kRowsPerTask));
  for (u32 layer = 0; layer < e.opened_.model.spec.n_cache_layers; ++layer) {
    if (layer > 0) TARN_CHECK(fill_arrived());  // the rows are free again
    e.workers_.run(n_tasks, [&](u32 task_idx, u32) {
      const u32 row = task_idx * kRowsPerTask;
      source.rows(source.context, {.cache_layer = layer,
                                   .first_slot = first_slot + row,
                                   .n = std::min(kRowsPerTask, n - row),
                                   .k = from_row(at.made_k, row),
                                   .v = from_row(at.made_v, row)});
    });
    if (at.made_k.data != at.k.data) {
      e.homes_.gpu().device().copy_in(
          DevicePtr<f32>(at.k.data).as<std::byte>(),
          std::as_bytes(std::span(at.made_k.data, n * at.made_k.stride)),
          e.homes_.gpu().device().stream(StreamId::compute));
    }
    e.executor_.forward_.backend->rope(at.q, at.k, n);
    e.executor_.forward_.backend->kv_append(e.executor_.batch_, layer, at.k, at.v);
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
  engine_.executor_.watch_ = watch;
  KvWatch& shown = engine_.executor_.batch_.kv_watch;
  shown = watch;
  if (engine_.status_.on_gpu && watch.rows != nullptr) shown = {&Probe::copy_out, &engine_};
}

// Shows copies of a GPU's rows: q, k and v of a row lie side by side there.
void Probe::copy_out(void* engine, const KvRows& rows) {
  engine::Engine& e = *static_cast<engine::Engine*>(engine);
  const u64 width = rows.q.stride;
  const u32 n_max = Probe(e).host_rows_max(width);
  for (u32 begin = 0; n_max > 0 && begin < rows.n; begin += n_max) {
    const u32 n = std::min(n_max, rows.n - begin);
    const Rows q{e.executor_.args_.host_logits.data, width};
    const Rows k{q.data + (rows.k.data - rows.q.data), width};
    const Rows v{q.data + (rows.v.data - rows.q.data), width};
    e.homes_.gpu().device().copy_out(std::as_writable_bytes(std::span(q.data, n * width)),
                                     DevicePtr<f32>(from_row(rows.q, begin).data).as<std::byte>(),
                                     e.homes_.gpu().device().stream(StreamId::compute));
    if (e.device_lost() || !e.current_.device_works()) return;
    e.executor_.watch_.rows(e.executor_.watch_.context, {.session = rows.session,
                                                         .cache_layer = rows.cache_layer,
                                                         .first_slot = rows.first_slot + begin,
                                                         .n = n,
                                                         .k = k,
                                                         .v = v,
                                                         .q = q});
  }
}

}  // namespace tarn::lab
