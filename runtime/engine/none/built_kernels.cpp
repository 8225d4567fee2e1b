#include "runtime/engine/built_kernels.h"

namespace tarn::engine {

const kernels::GpuTable* built_gpu_kernels() { return nullptr; }

}  // namespace tarn::engine
