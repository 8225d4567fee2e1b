// IoBackend over a few threads that call pread and pwrite, for systems that refuse io_uring. Each
// thread has one call in the kernel; other requests wait in a queue.
#pragma once

#include "platform/io/io_backend.h"

namespace tarn {

u64 threads_backend_bytes();
// `memory` is aligned to 64 and large enough.
Result<IoBackend*> threads_backend_create(const IoConfig& config, std::span<std::byte> memory);

}  // namespace tarn
