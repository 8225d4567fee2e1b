// runtime/engine/gpu_support.h
//
// Which models and configurations the GPU's kernels compute. Checked before anything is reserved;
// what they do not compute is refused with a hint that names the CPU.
#pragma once

#include "platform/base/result.h"
#include "runtime/config/config.h"
#include "runtime/model/model_spec.h"

namespace tarn::engine {

Result<void> gpu_can_run(const model::ModelDescription& model, const Config& config);

}  // namespace tarn::engine
