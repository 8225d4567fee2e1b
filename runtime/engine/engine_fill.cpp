// KV that no forward pass has computed, for measurements at a depth whose prefill would take hours.
// All that comes behind K and V is the forward pass's own: RoPE at the real position, the kernel
// that converts, the slots and their groups, commit, seal, and the mover that spills. What follows
// from the KV, as a selection's index, is made by whoever asks for it, as behind a prefill.
//
// On a GPU the rows are made where the host finds a step's logits, which nobody reads between
// steps, and copied to where the ops take them; rows that a step computed come back the same way.
#include <algorithm>

#include "platform/base/checked.h"
#include "runtime/engine/engine.h"

namespace tarn::engine {
namespace {

constexpr u32 kRowsPerTask = 16;

}  // namespace

// Rows of so many f32 that the host's side of a GPU holds at a time.
u32 Engine::host_rows_max(u64 width) const {
  const u64 n = logit_rows_max_ * u64{spec_.n_vocab} / width;
  return static_cast<u32>(std::min<u64>(n, plan_.rows_max));
}

Result<void> Engine::fill_kv(SessionIdx idx, std::span<const u32> ids, step::KvWatch rows) {
  const u64 d_kv = u64{spec_.n_kv_heads} * spec_.head_dim;
  const u32 rows_max = on_gpu() ? host_rows_max(2 * d_kv) : plan_.rows_max;
  if (rows_max == 0) {
    return fail({.status = Status::unsupported,
                 .hint = "rows of K and V are longer than this model's logits, which is where a "
                         "GPU's are filled in: use --device cpu (device.kind)"});
  }
  TARN_CHECK(feed(idx, ids));
  Session& s = session(idx);
  while (s.n_computable() > 0) {
    const Result<void> filled = fill_rows(s, std::min(s.n_computable(), rows_max), rows);
    if (filled) continue;
    give_up(s, filled.error());
    return filled;
  }
  s.state = SessionState::idle;
  s.fed_ns = 0;
  return {};
}

// Where the rows of a step lie for its ops, and where they are made.
Engine::FillPlaces Engine::fill_places(u32 n) const {
  const u64 d_q = u64{spec_.n_heads} * spec_.head_dim;
  const u64 d_kv = u64{spec_.n_kv_heads} * spec_.head_dim;
  const Rows qkv = buffers_.qkv;
  if (!on_gpu()) {
    const Rows k{qkv.data + d_q, qkv.stride}, v{k.data + d_kv, qkv.stride};
    return {.q = qkv, .k = k, .v = v, .made_k = k, .made_v = v};
  }
  // K and V of all rows side by side behind the queries of all, so that one copy takes them.
  const Rows k{qkv.data + n * d_q, 2 * d_kv}, made{host_logits_.data, 2 * d_kv};
  return {.q = {qkv.data, d_q},
          .k = k,
          .v = {k.data + d_kv, k.stride},
          .made_k = made,
          .made_v = {made.data + d_kv, made.stride}};
}

Result<void> Engine::fill_rows(Session& s, u32 n, step::KvWatch source) {
  const KvStats moved_before = kv_stats();
  trace_ = StepTrace{.step_idx = counters_.n_steps, .start_ns = clock_->now_ns()};
  drop_rows();
  add_rows(s, n);
  batch_.runs = runs_.first(n_runs_);
  if (kv_stream_.is_on()) {
    kv_stream_.begin_step();
    TARN_CHECK(kv_stream_.make_writable(s.sequence, n));
    kv_stream_.drop_plan();  // nothing is read: no part of the KV is wanted back
  }
  backend_->begin_step(batch_);
  const FillPlaces at = fill_places(n);  // the queries are turned along with K, and not looked at
  const u32 first_slot = s.sequence.n_slots();
  const u32 n_tasks = static_cast<u32>(ceil_div(n, kRowsPerTask));
  for (u32 layer = 0; layer < spec_.n_cache_layers; ++layer) {
    if (on_gpu() && layer > 0) TARN_CHECK(fill_arrived());  // the rows are free again
    workers_.run(n_tasks, [&](u32 task_idx, u32) {
      const u32 row = task_idx * kRowsPerTask;
      source.rows(source.context, {.cache_layer = layer,
                                   .first_slot = first_slot + row,
                                   .n = std::min(kRowsPerTask, n - row),
                                   .k = from_row(at.made_k, row),
                                   .v = from_row(at.made_v, row)});
    });
    if (on_gpu()) {
      device_->copy_in(DevicePtr<f32>(at.k.data).as<std::byte>(),
                       std::as_bytes(std::span(at.made_k.data, n * at.made_k.stride)),
                       device_->stream(StreamId::compute));
    }
    backend_->rope(at.q, at.k, n);
    backend_->kv_append(batch_, layer, at.k, at.v);
  }
  if (on_gpu()) TARN_CHECK(fill_arrived());
  s.sequence.commit(n);  // without a name: their tokens do not tell what is in these groups
  if (kv_stream_.is_moving()) kv_stream_.pump(0);
  trace_disk(moved_before);
  trace_.n_rows = 0;  // none was computed
  count_step();
  return {};
}

// Until the GPU has done what it was given. An error is the engine's end, as in a step.
Result<void> Engine::fill_arrived() {
  const Result<void> finished = backend_->finish();
  if (!finished) lose_device(finished.error());
  return finished;
}

void Engine::watch_kv(step::KvWatch watch) {
  watch_ = watch;
  const bool is_remote = on_gpu() && watch.rows != nullptr;
  batch_.kv_watch = is_remote ? step::KvWatch{&Engine::bring_kv, this} : watch;
}

// Shows rows that lie on a GPU: q, k and v of a row stand side by side there.
void Engine::bring_kv(void* context, const step::KvRows& rows) {
  Engine& self = *static_cast<Engine*>(context);
  const u64 width = rows.q.stride;
  const u32 n_max = self.host_rows_max(width);
  for (u32 begin = 0; n_max > 0 && begin < rows.n; begin += n_max) {
    const u32 n = std::min(n_max, rows.n - begin);
    const Rows q{self.host_logits_.data, width};
    const Rows k{q.data + (rows.k.data - rows.q.data), width};
    const Rows v{q.data + (rows.v.data - rows.q.data), width};
    self.device_->copy_out(std::as_writable_bytes(std::span(q.data, n * width)),
                           DevicePtr<f32>(from_row(rows.q, begin).data).as<std::byte>(),
                           self.device_->stream(StreamId::compute));
    if (self.device_lost() || !self.device_works()) return;
    self.watch_.rows(self.watch_.context, {.session = rows.session,
                                           .cache_layer = rows.cache_layer,
                                           .first_slot = rows.first_slot + begin,
                                           .n = n,
                                           .k = k,
                                           .v = v,
                                           .q = q});
  }
}

}  // namespace tarn::engine
