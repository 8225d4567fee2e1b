// Which models and configurations the GPU's kernels compute. Checked before anything is reserved;
// what they do not compute is refused with a hint that names the CPU. What they choose of KV in the
// GPU's memory is a matter of its own: where KV lies over memory and disk, the host chooses.
#pragma once

#include "platform/base/result.h"
#include "runtime/config/config.h"
#include "runtime/model/model_spec.h"

namespace tarn::exec {

Result<void> gpu_can_run(const model::ModelDescription& model, const Config& config);
Result<void> gpu_can_select(const SelectConfig& config);

}  // namespace tarn::exec
