#include "runtime/exec/gpu/indexes.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/gpu/device_wait.h"
#include "runtime/exec/gpu/gpu_backend.h"

namespace tarn::exec {

Result<void> GpuIndexes::open(const GpuIndexesArgs& args) {
  TARN_ASSERT(fetched_ == nullptr);
  args_ = args;
  stream_ = args_.device->stream(StreamId::compute);
  keys_stream_ = args_.device->stream(StreamId::copy_out);
  TARN_TRY(fetched_, args_.device->create_event());
  return {};
}

void GpuIndexes::close() {
  if (fetched_ != nullptr) args_.device->destroy_event(fetched_);
  fetched_ = nullptr;
}

DeviceBytes GpuIndexes::index(u32 session) const {
  auto* const first = reinterpret_cast<std::byte*>(args_.indexes.data());
  return DeviceBytes(first + session * args_.sizes.table_bytes());
}

Result<u32> GpuIndexes::fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
  const u64 group_bytes = args_.sizes.group.group_bytes();
  const u32 n = std::min(end - begin, args_.sizes.window_groups());
  for (u32 i = 0; i < n; ++i) {
    const u64 address = sequence.group_address(cache_layer, begin + i);
    args_.device->copy_out(args_.window.subspan(i * group_bytes, group_bytes),
                           DeviceBytes(reinterpret_cast<std::byte*>(address)), keys_stream_);
  }
  args_.device->record(fetched_, keys_stream_);
  TARN_CHECK(wait_done(*args_.device, fetched_, *args_.clock, kGpuWaitNsMax));
  TARN_CHECK(args_.device->check());
  return n;
}

Result<void> GpuIndexes::put(u32 session, const std::byte* index_bytes) {
  args_.device->copy_in(index(session), {index_bytes, args_.sizes.index_bytes}, stream_);
  TARN_CHECK(args_.backend->progress().finish());  // the host's bytes may change from now on
  return args_.device->check();
}

void GpuIndexes::copy(u32 from, u32 to) {
  args_.device->copy(index(to), index(from), args_.sizes.table_bytes(), stream_);
  args_.backend->progress().note();
}

}  // namespace tarn::exec
