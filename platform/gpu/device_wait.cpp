#include "platform/gpu/device_wait.h"

#include <time.h>

namespace tarn {
namespace {

constexpr u64 kSpinNs = 50'000;
constexpr long kNapNs = 20'000;

}  // namespace

Result<void> wait_done(Device& device, GpuEvent* event, Clock& clock, u64 limit_ns) {
  const u64 begin_ns = clock.now_ns();
  while (true) {
    TARN_TRY(const bool is_done, device.is_done(event));
    if (is_done) return {};
    const u64 waited_ns = clock.now_ns() - begin_ns;
    if (waited_ns > limit_ns) {
      device.give_up();
      return device.check();
    }
    if (waited_ns > kSpinNs) {
      const timespec nap{0, kNapNs};
      (void)nanosleep(&nap, nullptr);
    }
  }
}

}  // namespace tarn
