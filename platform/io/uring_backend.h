// platform/io/uring_backend.h
//
// IoBackend over io_uring (kernel 5.11 and later). platform/io/uring implements it with liburing,
// platform/io/no_uring is what a build without liburing has; CMake picks one.
#pragma once

#include "platform/io/io_backend.h"

namespace tarn {

u64 uring_backend_bytes();
// `memory` is aligned to 64 and large enough. The ring is set up and tested: an error's hint says
// in one sentence why there is none, its figure is the errno.
Result<IoBackend*> uring_backend_create(const IoConfig& config, std::span<std::byte> memory);

}  // namespace tarn
