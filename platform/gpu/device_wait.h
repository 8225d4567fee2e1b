// platform/gpu/device_wait.h
//
// Waiting for a GPU with an end to it: a hung GPU answers no call, so nobody ever blocks in the
// driver. The wait polls, first without giving the core away (a decode step takes milliseconds),
// then with short sleeps.
#pragma once

#include "platform/clock/clock.h"
#include "platform/gpu/device.h"

namespace tarn {

// Until `event` is done, or for `limit_ns`: a GPU that has not answered by then is taken for lost,
// and the device with it (Device::give_up).
Result<void> wait_done(Device& device, GpuEvent* event, Clock& clock, u64 limit_ns);

}  // namespace tarn
