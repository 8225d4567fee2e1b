// platform/io/threads_backend.h
//
// IoBackend over a few threads that call pread and pwrite: the backend of every system that refuses
// io_uring. It can keep as many calls in the kernel as it has threads; the rest of what is in
// flight waits in a queue.
#pragma once

#include "platform/io/io_backend.h"

namespace tarn {

u64 threads_backend_bytes();
// `memory` is aligned to 64 and large enough.
Result<IoBackend*> threads_backend_create(const IoConfig& config, std::span<std::byte> memory);

}  // namespace tarn
