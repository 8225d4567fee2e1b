// Waits for a GPU with a time limit. A hung GPU answers no call, so no thread ever blocks in the
// driver. The wait polls with short naps, so it ends some 90 us late. A repeated wait (a decode
// step takes milliseconds) takes about as long as the last time. So the naps end 0.3 ms before
// that, and then the wait spins for at most 2 ms.
#pragma once

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn {

class StreamProgress;

// Waits until `event` is done. A GPU that takes longer than `limit_ns` counts as lost
// (Device::give_up). `usual_ns` is the length of the last such wait, 0 at first; the length of this
// wait replaces it. With `progress` the limit starts again whenever the stream makes progress.
Result<void> wait_done(Device& device, GpuEvent* event, Clock& clock, u64 limit_ns,
                       u64* usual_ns = nullptr, StreamProgress* progress = nullptr);

}  // namespace tarn
