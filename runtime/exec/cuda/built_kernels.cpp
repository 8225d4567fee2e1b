#include "runtime/exec/built_kernels.h"

namespace tarn::exec {

const kernels::GpuTable* built_gpu_kernels() { return &kernels::gpu_table_cuda(); }

}  // namespace tarn::exec
