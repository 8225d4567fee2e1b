#include "runtime/exec/gpu/host_rows.h"

#include <algorithm>

namespace tarn::exec {

using step::from_row;
using step::KvRows;
using step::Rows;

u32 GpuHostRows::rows_max(u64 width) const {
  const u64 n = args_.n_buffer_rows * args_.buffer.stride / width;
  return static_cast<u32>(std::min<u64>(n, args_.rows_max));
}

// K and V of all rows lie side by side behind the queries of all, so that one copy takes them.
HostRows::Made GpuHostRows::made(u32 n) const {
  const u64 d_q = args_.memory.d_q, d_kv = (args_.memory.d_qkv - d_q) / 2;
  f32* const q = args_.memory.qkv.data();
  const Rows k{q + n * d_q, 2 * d_kv}, host_k{args_.buffer.data, 2 * d_kv};
  return {.q = {q, d_q},
          .k = k,
          .v = {k.data + d_kv, k.stride},
          .host_k = host_k,
          .host_v = {host_k.data + d_kv, host_k.stride}};
}

void GpuHostRows::hand_over(const Made& rows, u32 n) {
  args_.device->copy_in(DevicePtr<f32>(rows.k.data).as<std::byte>(),
                        std::as_bytes(std::span(rows.host_k.data, n * rows.host_k.stride)),
                        args_.device->stream(StreamId::compute));
}

step::KvWatch GpuHostRows::shown_to(const step::KvWatch& watch) {
  watch_ = watch;
  return watch.rows == nullptr ? watch : step::KvWatch{&GpuHostRows::show_copies, this};
}

bool GpuHostRows::copy_out(Rows from, u32 n) {
  args_.device->copy_out(std::as_writable_bytes(std::span(args_.buffer.data, n * from.stride)),
                         DevicePtr<f32>(from.data).as<std::byte>(),
                         args_.device->stream(StreamId::compute));
  if (args_.backend->finish()) return true;
  args_.device->give_up();
  return false;
}

// q, k and v of a row lie side by side on the device.
void GpuHostRows::show_copies(void* context, const KvRows& rows) {
  auto& self = *static_cast<GpuHostRows*>(context);
  const u64 width = rows.q.stride;
  const u32 n_max = self.rows_max(width);
  for (u32 begin = 0; n_max > 0 && begin < rows.n; begin += n_max) {
    const u32 n = std::min(n_max, rows.n - begin);
    if (!self.copy_out(from_row(rows.q, begin), n)) return;
    const Rows q{self.args_.buffer.data, width};
    self.watch_.rows(self.watch_.context, {.session = rows.session,
                                           .cache_layer = rows.cache_layer,
                                           .first_slot = rows.first_slot + begin,
                                           .n = n,
                                           .k = {q.data + (rows.k.data - rows.q.data), width},
                                           .v = {q.data + (rows.v.data - rows.q.data), width},
                                           .q = q});
  }
}

}  // namespace tarn::exec
