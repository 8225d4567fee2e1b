#include "platform/gpu/device_wait.h"

#include "platform/gpu/stream_progress.h"

namespace tarn {
namespace {

constexpr u64 kNapNs = 20'000;  // some 90 us with the timers' slack
constexpr u64 kSpinNs = 50'000;
// A wait of predictable length spins instead of napping: from so long before its predicted end, for
// so long at most.
constexpr u64 kEarlyNs = 300'000;
constexpr u64 kGuessedSpinNs = 2'000'000;

}  // namespace

Result<void> wait_done(Device& device, GpuEvent* event, Clock& clock, u64 limit_ns, u64* usual_ns,
                       StreamProgress* progress) {
  const u64 usual = usual_ns != nullptr ? *usual_ns : 0;
  const u64 spin_begin_ns = usual > kEarlyNs ? usual - kEarlyNs : 0;
  const u64 spin_end_ns = spin_begin_ns + (usual_ns != nullptr ? kGuessedSpinNs : kSpinNs);
  const u64 begin_ns = clock.now_ns();
  u64 moved_ns = 0;  // time in the wait of the stream's last progress
  while (true) {
    // Read before the event: if the host is stopped in between, the event's answer is newer than
    // the time.
    const u64 waited_ns = clock.now_ns() - begin_ns;
    TARN_TRY(const bool is_done, device.is_done(event));
    if (is_done && usual_ns != nullptr) *usual_ns = waited_ns;
    if (is_done) return {};
    if (progress != nullptr && progress->advance()) moved_ns = waited_ns;
    if (waited_ns - moved_ns > limit_ns) {
      device.give_up();
      return device.check();
    }
    if (waited_ns < spin_begin_ns || waited_ns > spin_end_ns) clock.nap_ns(kNapNs);
  }
}

}  // namespace tarn
