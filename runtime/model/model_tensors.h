// The tensors of a model's description: found in the file by name, then checked against the
// hyper-parameters. Private to describe_model(), which calls both in this order.
#pragma once

#include "runtime/model/model_spec.h"

namespace tarn::model {

// Fills out.tensors with every tensor of a known name. An unknown name is an error, reported before
// any missing tensor. out.spec needs its architecture and n_layers.
Result<void> find_tensors(const GgufFile& file, Bump& memory, ModelDescription& out);

// Checks shapes and types against out.spec, counts the tensors' elements and bytes, and records the
// optional tensors.
Result<void> check_tensors(ModelDescription& out);

}  // namespace tarn::model
