#include "platform/gpu/memory_probe.h"

#include <algorithm>

#include "platform/base/assert.h"
#include "platform/gpu/device_wait.h"

namespace tarn {
namespace {

constexpr u32 kReads = 3;  // the first warms the TLB and loads the kernel

struct Events {
  Device& device;
  GpuEvent* begin = nullptr;
  GpuEvent* end = nullptr;

  explicit Events(Device& lent) : device(lent) {}
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  ~Events() {
    if (begin != nullptr) device.destroy_event(begin);
    if (end != nullptr) device.destroy_event(end);
  }
  Result<void> create() {
    TARN_TRY(begin, device.create_event());
    TARN_TRY(end, device.create_event());
    return {};
  }
};

Result<u64> read_bytes_per_s(const MemoryProbeArgs& args, const Events& events, DeviceBytes from,
                             u64 n_bytes) {
  Device& device = *args.device;
  GpuStream* stream = device.stream(StreamId::compute);
  u64 best = 0;
  for (u32 i = 0; i < kReads; ++i) {
    device.record(events.begin, stream);
    device.read(from, n_bytes, stream);
    device.record(events.end, stream);
    TARN_CHECK(wait_done(device, events.end, *args.clock, args.wait_ns_max));
    TARN_CHECK(device.check());
    TARN_TRY(const u64 elapsed_ns, device.elapsed_ns(events.begin, events.end));
    if (i > 0 && elapsed_ns > 0) {
      const f64 per_s = static_cast<f64>(n_bytes) * 1e9 / static_cast<f64>(elapsed_ns);
      best = std::max(best, static_cast<u64>(per_s));
    }
  }
  return best;
}

}  // namespace

Result<MemoryProbe> probe_memory(const MemoryProbeArgs& args) {
  TARN_ASSERT(args.host_memory.size() % 16 == 0);
  Device& device = *args.device;
  const u64 n_bytes = args.host_memory.size();
  Events events(device);
  TARN_CHECK(events.create());
  MemoryProbe probe;
  TARN_TRY(probe.device_bytes_per_s, read_bytes_per_s(args, events, args.device_memory, n_bytes));
  if (!args.host_is_pinned && !device.facts().host_register) return probe;
  TARN_TRY(const DeviceBytes shared, args.host_is_pinned ? device.pinned_address(args.host_memory)
                                                         : device.register_host(args.host_memory));
  const Result<u64> rate = read_bytes_per_s(args, events, shared, n_bytes);
  if (!args.host_is_pinned) device.unregister_host(args.host_memory);
  if (!rate) return fail(rate.error());
  probe.shared_bytes_per_s = *rate;
  return probe;
}

}  // namespace tarn
