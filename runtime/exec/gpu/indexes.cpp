#include "runtime/exec/gpu/indexes.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/gpu/device_wait.h"

namespace tarn::exec {

Result<void> GpuIndexes::open() {
  TARN_ASSERT(fetched_ == nullptr);
  keys_stream_ = step_.device().stream(StreamId::copy_out);
  TARN_TRY(fetched_, step_.device().create_event());
  return {};
}

void GpuIndexes::close() {
  if (fetched_ != nullptr) step_.device().destroy_event(fetched_);
  fetched_ = nullptr;
}

DeviceBytes GpuIndexes::index(u32 session) const {
  auto* const first = reinterpret_cast<std::byte*>(step_.regions().indexes.bytes.data());
  return DeviceBytes(first + session * step_.sizes().table_bytes());
}

Result<u32> GpuIndexes::fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
  Device& device = step_.device();
  const u64 group_bytes = step_.sizes().group.group_bytes();
  const u32 n = std::min(end - begin, step_.sizes().key_groups());
  for (u32 i = 0; i < n; ++i) {
    const u64 address = sequence.group_address(cache_layer, begin + i);
    device.copy_out(step_.host().keys.subspan(i * group_bytes, group_bytes),
                    DeviceBytes(reinterpret_cast<std::byte*>(address)), keys_stream_);
  }
  device.record(fetched_, keys_stream_);
  TARN_CHECK(or_lost(wait_done(device, fetched_, *step_.args().clock, kGpuWaitNsMax)));
  TARN_CHECK(or_lost(device.check()));
  return n;
}

// Reads the window's groups, one behind the other.
void GpuIndexes::pages(const kv::Sequence&, u32, u32 kv_head, u32 begin, u32 end,
                       std::span<const u8*> out) const {
  const kv::GroupShape& group = step_.sizes().group;
  const u8* page =
      reinterpret_cast<const u8*>(step_.host().keys.data()) + kv_head * group.page_bytes();
  for (u32 i = 0; i < end - begin; ++i) out[i] = page + i * group.group_bytes();
}

Result<void> GpuIndexes::put(u32 session, const std::byte* index_bytes) {
  step_.device().copy_in(index(session), {index_bytes, step_.sizes().index_bytes}, step_.stream());
  TARN_CHECK(or_lost(step_.progress().finish()));  // the host's bytes may change from now on
  return or_lost(step_.device().check());
}

void GpuIndexes::copy(u32 from, u32 to) {
  step_.device().copy(index(to), index(from), step_.sizes().table_bytes(), step_.stream());
  step_.progress().note();
}

}  // namespace tarn::exec
