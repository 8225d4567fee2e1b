// platform/io/no_uring/uring_backend.cpp: the build without liburing.
#include "platform/io/uring_backend.h"

namespace tarn {

u64 uring_backend_bytes() { return 0; }

Result<IoBackend*> uring_backend_create(const IoConfig&, std::span<std::byte>) {
  return fail({.status = Status::unsupported,
               .hint =
                   "this build has no io_uring: install liburing-dev and configure again, or set "
                   "io.backend (--io) to \"threads\""});
}

}  // namespace tarn
