#include "runtime/exec/gpu/chunks.h"

#include <algorithm>
#include <numeric>

namespace tarn::exec {

kernels::GpuPages GpuChunks::source_pages(u32 cache_layer) const {
  kernels::GpuPages pages = step_.pages(cache_layer, 0);
  pages.tables =
      step_.regions().step.counts.data() + step_.sizes().source_table();  // counts[i] = i
  return pages;
}

void GpuChunks::send_table(u32 table, kv::Sequence& sequence) {
  step_.send_groups(table, sequence, sequence.take_changed_groups(), sequence.n_groups());
}

// K, where it is wanted, and V of slots of the source's table.
void GpuChunks::read(u32 cache_layer, u32 first_slot, u32 n, f32* k, f32* v) {
  const u64 d_kv = u64{step_.spec().n_kv_heads} * step_.spec().head_dim;
  step_.enqueue(&kernels::GpuTable::kv_read, {.pages = source_pages(cache_layer),
                                              .first_slot = first_slot,
                                              .n_rows = n,
                                              .k = k,
                                              .k_stride = d_kv,
                                              .v = v,
                                              .v_stride = d_kv});
}

Result<void> GpuChunks::transplant(const Move& move) {
  step_.set_mode(GpuStep::Mode::eager);
  send_table(step_.sizes().source_table(), *move.source);
  send_table(move.session, *move.target);
  for (u32 done = 0, n = 0; done < move.n; done += n) {
    n = std::min(move.n - done, step_.sizes().rows_max);
    Move part = move;
    part.source_slot += done;
    part.slot += done;
    part.n = n;
    transplant_rows(part);
    TARN_CHECK(or_lost(step_.finish()));  // the state's memory is the next rows'
  }
  return {};
}

void GpuChunks::transplant_rows(const Move& move) {
  const model::ModelSpec& spec = step_.spec();
  step_.place_state(move.n);
  const GpuState& state = step_.on_host();
  state.n_rows[0] = move.n;
  std::iota(state.slots.begin(), state.slots.begin() + move.n, move.slot);
  std::fill_n(state.sessions.data(), move.n, move.session);
  std::fill_n(state.visible.data(), move.n, move.distance);
  kernels::rope_table({.positions = state.visible.data(),
                       .n_rows = move.n,
                       .n_rot = spec.n_rot,
                       .inv_freq = step_.host().rows.inv_freq.data(),
                       .cos = state.cos.data(),
                       .sin = state.sin.data()});
  step_.send_state();
  const StepMemory& memory = step_.regions().step.step;
  const u64 d_kv = u64{spec.n_kv_heads} * spec.head_dim;
  f32* const k = memory.qkv.data();
  f32* const v = memory.attn_out.data();
  for (u32 layer = 0; layer < spec.n_cache_layers; ++layer) {
    read(layer, move.source_slot, move.n, k, v);
    step_.enqueue(
        &kernels::GpuTable::rope,
        {.q = {.x = k, .stride = d_kv, .n_heads = spec.n_kv_heads},
         .k = {.x = k, .stride = d_kv, .n_heads = 0},
         .cos = step_.on_device().cos.data(),
         .sin = step_.on_device().sin.data(),
         .n_rows = step_.count(move.n),
         .rows_max = move.n,
         .head_dim = spec.head_dim,
         .n_rot = spec.n_rot,
         .pairs = spec.rope_halves ? kernels::RopePairs::halves : kernels::RopePairs::adjacent});
    step_.enqueue(&kernels::GpuTable::kv_append, {.pages = step_.pages(layer, 0),
                                                  .k = k,
                                                  .k_stride = d_kv,
                                                  .v = v,
                                                  .v_stride = d_kv,
                                                  .slots = step_.on_device().slots.data(),
                                                  .n_rows = step_.count(move.n),
                                                  .rows_max = move.n});
  }
}

Result<void> GpuChunks::compare(kv::Sequence& source, const kv::ChunkValues& values,
                                std::span<f32> deviation) {
  const u32 n = static_cast<u32>(deviation.size());
  const u32 d_kv = step_.spec().n_kv_heads * step_.spec().head_dim;
  step_.set_mode(GpuStep::Mode::eager);
  send_table(step_.sizes().source_table(), source);
  f32* const v = step_.regions().step.step.attn_out.data();
  read(values.cache_layer, values.first_slot, n, nullptr, v);
  const std::span<f32> to = step_.host().source_values.first(u64{n} * d_kv);
  step_.args().device->copy_out(std::as_writable_bytes(to), DevicePtr<f32>(v).as<std::byte>(),
                                step_.stream());
  TARN_CHECK(or_lost(step_.finish()));
  for (u32 row = 0; row < n; ++row) {
    deviation[row] = kv::deviation_of(kv::squared_distance(step::from_row(values.v, row).data,
                                                           Carver::row(to, n, row).data(), d_kv));
  }
  return {};
}

}  // namespace tarn::exec
