// The GPU kernels that this build holds; cuda/ and none/ implement it, CMake links one of them.
#pragma once

#include "kernels/gpu_table.h"

namespace tarn::exec {

const kernels::GpuTable* built_gpu_kernels();  // nullptr: none

}  // namespace tarn::exec
