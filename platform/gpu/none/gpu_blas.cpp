// platform/gpu/none/gpu_blas.cpp: the build without a GPU has no library for it.
#include "platform/gpu/gpu_blas.h"

#include "platform/base/assert.h"

namespace tarn {

Result<void> GpuBlas::open(const GpuBlasOpenArgs&) {
  return fail(
      {.status = Status::unsupported, .hint = "cuBLAS is absent: this build has no GPU backend"});
}
void GpuBlas::close() {}
void GpuBlas::product(const GpuBlasArgs&, GpuStream*) { TARN_ASSERT(is_open()); }
Result<void> GpuBlas::check() { return {}; }

}  // namespace tarn
