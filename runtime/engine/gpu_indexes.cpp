#include "runtime/engine/gpu_indexes.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/gpu/device_wait.h"
#include "runtime/engine/gpu_backend.h"

namespace tarn::engine {

Result<void> GpuIndexes::open(const GpuIndexesArgs& args) {
  TARN_ASSERT(done_ == nullptr);
  args_ = args;
  stream_ = args_.device->stream(StreamId::compute);
  keys_stream_ = args_.device->stream(StreamId::copy_out);
  TARN_TRY(done_, args_.device->create_event());
  TARN_TRY(fetched_, args_.device->create_event());
  return {};
}

void GpuIndexes::close() {
  for (GpuEvent** event : {&done_, &fetched_}) {
    if (*event != nullptr) args_.device->destroy_event(*event);
    *event = nullptr;
  }
}

Result<void> GpuIndexes::finish(GpuEvent* event, GpuStream* stream) {
  args_.device->record(event, stream);
  TARN_CHECK(wait_done(*args_.device, event, *args_.clock, args_.backend->wait_ns_max()));
  return args_.device->check();
}

DeviceBytes GpuIndexes::index(u32 session) const {
  return DeviceBytes(args_.indexes + session * args_.plan->gpu_select.table_bytes);
}

Result<u32> GpuIndexes::fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) {
  const u64 group_bytes = args_.plan->group_shape.group_bytes();
  const u32 n = std::min(end - begin, args_.plan->gpu_select.window_groups);
  for (u32 i = 0; i < n; ++i) {
    const u64 address = sequence.group_address(cache_layer, begin + i);
    args_.device->copy_out(args_.window.subspan(i * group_bytes, group_bytes),
                           DeviceBytes(reinterpret_cast<std::byte*>(address)), keys_stream_);
  }
  TARN_CHECK(finish(fetched_, keys_stream_));
  return n;
}

Result<void> GpuIndexes::put(u32 session, const std::byte* index_bytes) {
  const plan::SelectShape& shape = args_.plan->select;
  args_.device->copy_in(index(session), {index_bytes, shape.n_heads * shape.index_bytes}, stream_);
  return finish(done_, stream_);  // the host's bytes may change from now on
}

void GpuIndexes::copy(u32 from, u32 to) {
  args_.device->copy(index(to), index(from), args_.plan->gpu_select.table_bytes, stream_);
}

}  // namespace tarn::engine
