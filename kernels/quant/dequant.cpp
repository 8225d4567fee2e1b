#include "kernels/quant/dequant.h"

#include <cstring>

#include "kernels/common/half.h"
#include "kernels/quant/strip.h"

namespace tarn::kernels {
namespace {

f32 element(TensorType type, const u8* bytes) {
  if (type == TensorType::f32) {
    f32 value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  u16 half;
  std::memcpy(&half, bytes, sizeof half);
  return type == TensorType::f16 ? f16_to_f32(half) : bf16_to_f32(half);
}

// The products of d, scale and code fit in 24 bits, so they are exact in any order; the only
// rounding is the subtraction's, and a type without minima must not have one (0 - 0 would lose the
// sign of -0).
void strip_values(const Strip& strip, bool has_min, f32* out) {
  for (u32 e = 0; e < kStripElems; ++e) {
    const u32 half = e / 16;
    const f32 low = strip.dmin * static_cast<f32>(strip.min[half]);
    const f32 scale = strip.d * static_cast<f32>(strip.scale[half]);
    const f32 value = scale * static_cast<f32>(strip.codes[e] - strip.zero);
    out[e] = has_min ? value - low : value;
  }
}

bool type_has_min(TensorType type) {
  bool has_min = false;
  QuantTypes::visit(type, [&]<class Type>(Type) { has_min = HasMinimum<Type>; });
  return has_min;
}

}  // namespace

void dequantize_row(TensorType type, const void* source, u64 k, f32* out) {
  const TypeTraits& traits = type_traits(type);
  const u8* block = static_cast<const u8*>(source);
  if (traits.block_elems == 1) {
    for (u64 i = 0; i < k; ++i) out[i] = element(type, block + i * traits.block_bytes);
    return;
  }
  const bool has_min = type_has_min(type);
  for (u64 i = 0; i < k; i += traits.block_elems, block += traits.block_bytes) {
    for (u32 s = 0; s < traits.block_elems / kStripElems; ++s) {
      strip_values(strip_from_file(type, block, s), has_min, out + i + u64{s} * kStripElems);
    }
  }
}

void dequantize_tiled_row(TensorType type, const void* tiled, u64 row, u64 k, f32* out) {
  const TypeTraits& traits = type_traits(type);
  const u64 tile_bytes = tiled_bytes(type, kTileRows, k);
  const u8* block = static_cast<const u8*>(tiled) + row / kTileRows * tile_bytes;
  const u32 lane = static_cast<u32>(row % kTileRows);
  if (traits.block_elems == 1) {
    const u64 bytes = traits.block_bytes;
    for (u64 i = 0; i < k; ++i) out[i] = element(type, block + (i * kTileRows + lane) * bytes);
    return;
  }
  const bool has_min = type_has_min(type);
  for (u64 i = 0; i < k; i += traits.block_elems, block += traits.block_bytes * kTileRows) {
    for (u32 s = 0; s < traits.block_elems / kStripElems; ++s) {
      const Strip strip = strip_from_tile(type, block, lane, s);
      strip_values(strip, has_min, out + i + u64{s} * kStripElems);
    }
  }
}

}  // namespace tarn::kernels
