// Name and block geometry of every tensor type of the GGUF format. It includes types without
// kernels, because their extent in the file is checked too and errors name them.
#pragma once

#include "platform/base/types.h"

namespace tarn::model {

struct GgufTensorTypeInfo {
  u32 id;
  const char* name;  // lower case
  u32 block_elems;   // along a row
  u32 block_bytes;
};

// nullptr for an id that the table lacks.
const GgufTensorTypeInfo* gguf_tensor_type(u32 id);
// "unknown" for an id that the table lacks.
const char* gguf_tensor_type_name(u32 id);

}  // namespace tarn::model
