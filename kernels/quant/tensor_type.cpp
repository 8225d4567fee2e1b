#include "kernels/quant/tensor_type.h"

#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::kernels {

const TypeTraits* type_traits(u32 gguf_type_id) {
  for (const TypeTraits& traits : kTypeTraits) {
    if (static_cast<u32>(traits.type) == gguf_type_id) return &traits;
  }
  return nullptr;
}

const TypeTraits& type_traits(TensorType type) {
  const TypeTraits* traits = type_traits(static_cast<u32>(type));
  TARN_ASSERT(traits != nullptr);
  return *traits;
}

u64 row_bytes(TensorType type, u64 k) {
  const TypeTraits& traits = type_traits(type);
  const auto bytes = Checked(k).divided_exactly(traits.block_elems) * Checked(traits.block_bytes);
  TARN_ASSERT(bytes.valid());
  return *bytes.get();
}

u64 tiled_bytes(TensorType type, u64 n_rows, u64 k) {
  const auto bytes = Checked(n_rows).aligned_up(kTileRows) * Checked(row_bytes(type, k));
  TARN_ASSERT(bytes.valid());
  return *bytes.get();
}

}  // namespace tarn::kernels
