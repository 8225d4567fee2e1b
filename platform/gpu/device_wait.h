// platform/gpu/device_wait.h
//
// Waiting for a GPU with an end to it: a hung GPU answers no call, so nobody ever blocks in the
// driver. The wait polls, with short naps, which are seen some 90 us late. What is waited for again
// and again (a decode step takes milliseconds) takes about as long as the last time: then the naps
// end 0.3 ms before that, and for at most 2 ms the core is not given away.
#pragma once

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn {

class StreamProgress;

// Until `event` is done, or for `limit_ns`: a GPU that has not answered by then is taken for lost,
// and the device with it (Device::give_up). `usual_ns`: how long the same wait took last time, 0 at
// first; this one's length takes its place. With `progress` the limit begins anew whenever the
// stream got further.
Result<void> wait_done(Device& device, GpuEvent* event, Clock& clock, u64 limit_ns,
                       u64* usual_ns = nullptr, StreamProgress* progress = nullptr);

}  // namespace tarn
