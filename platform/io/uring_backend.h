// IoBackend over io_uring (kernel 5.11 and later). platform/io/uring implements it with liburing; a
// build without liburing has platform/io/no_uring. CMake picks one.
#pragma once

#include "platform/io/io_backend.h"

namespace tarn {

u64 uring_backend_bytes();
// `memory` is aligned to 64 and large enough. Sets the ring up and tests it. On failure the error's
// hint has the reason in one sentence, and its figure is the errno.
Result<IoBackend*> uring_backend_create(const IoConfig& config, std::span<std::byte> memory);

}  // namespace tarn
