// The indexes that a GPU chooses by, one a session, each as the host lays it out
// (method::PqIndex::layout). They go there on the compute stream, in order with the steps. Keys
// come on a stream of their own, beside a step that computes: those of slots that earlier steps
// wrote, which have ended.
//
//   memory   the plan's, lent; of its own two events
#pragma once

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"
#include "runtime/exec/gpu/regions.h"
#include "runtime/method/device.h"

namespace tarn::exec {

class GpuBackend;

struct GpuIndexesArgs {
  Device* device = nullptr;
  GpuBackend* backend = nullptr;  // its progress is the compute stream's; open when it is asked
  Clock* clock = nullptr;
  GpuSizes sizes{};
  std::span<u8> indexes{};        // on the device: [sessions_max] of table_bytes()
  std::span<std::byte> window{};  // on the host
};

class GpuIndexes final : public method::DeviceIndexes {
 public:
  GpuIndexes() = default;
  GpuIndexes(const GpuIndexes&) = delete;
  GpuIndexes& operator=(const GpuIndexes&) = delete;
  ~GpuIndexes() { close(); }

  Result<void> open(const GpuIndexesArgs& args);
  void close();

  Result<u32> fetch(const kv::Sequence& sequence, u32 cache_layer, u32 begin, u32 end) override;
  const u8* window() const override { return reinterpret_cast<const u8*>(args_.window.data()); }
  Result<void> put(u32 session, const std::byte* index) override;
  void copy(u32 from, u32 to) override;

 private:
  DeviceBytes index(u32 session) const;

  GpuIndexesArgs args_{};
  GpuStream *stream_ = nullptr, *keys_stream_ = nullptr;
  GpuEvent* fetched_ = nullptr;
};

}  // namespace tarn::exec
