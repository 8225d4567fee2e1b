// runtime/model/model_tensors.h
//
// The tensors of a model's description: found in the file by name, then held against the
// hyper-parameters. Private to describe_model(), which calls both in this order.
#pragma once

#include "runtime/model/model_spec.h"

namespace tarn::model {

// Fills out.tensors with every tensor that has a name we know. One that we do not know is an error,
// before its absent counterpart is missed. out.spec needs its architecture and n_layers.
Result<void> find_tensors(const GgufFile& file, Bump& memory, ModelDescription& out);

// Shapes and types against out.spec; counts what the tensors hold, and says which optional ones are
// there.
Result<void> check_tensors(ModelDescription& out);

}  // namespace tarn::model
