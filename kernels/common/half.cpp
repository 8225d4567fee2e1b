#include "kernels/common/half.h"

#include <cstring>

namespace tarn::kernels {
namespace {

u32 bits_of(f32 value) {
  u32 bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

f32 f32_of(u32 bits) {
  f32 value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

constexpr u32 kF32Infinity = 0x7F800000u;
constexpr u32 kF32QuietBit = 0x00400000u;

}  // namespace

f32 f16_to_f32(u16 half) {
  const u32 sign = u32{half} >> 15 << 31;
  const u32 exponent = (u32{half} >> 10) & 31u;
  const u32 mantissa = u32{half} & 0x3FFu;
  if (exponent == 31) {  // infinity or NaN
    const u32 quiet = mantissa != 0 ? kF32QuietBit : 0u;
    return f32_of(sign | kF32Infinity | quiet | mantissa << 13);
  }
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const f32 magnitude = static_cast<f32>(mantissa) * 0x1.0p-24f;
    return f32_of(sign | bits_of(magnitude));
  }
  return f32_of(sign | (exponent + 127 - 15) << 23 | mantissa << 13);
}

u16 f32_to_f16(f32 value) {
  const u32 bits = bits_of(value);
  const u32 sign = bits >> 31 << 15;
  const u32 magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > kF32Infinity) {
    return static_cast<u16>(sign | 0x7E00u | ((magnitude >> 13) & 0x3FFu));
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: the result is subnormal or zero
    // Adding 0.5 puts the f16 subnormal's unit (2^-24) at the last bit of an f32 in [0.5, 1), so
    // the addition itself rounds to nearest even.
    const f32 shifted = f32_of(magnitude) + 0.5f;
    return static_cast<u16>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  // Round the 13 low bits away to nearest even; a carry may run into the exponent, as it should.
  const u32 rounded = magnitude + 0xFFFu + ((magnitude >> 13) & 1u);
  const u32 half = (rounded - ((127u - 15u) << 23)) >> 13;
  return static_cast<u16>(sign | (half < 0x7C00u ? half : 0x7C00u));
}

f32 bf16_to_f32(u16 brain) { return f32_of(u32{brain} << 16); }

u16 f32_to_bf16(f32 value) {
  const u32 bits = bits_of(value);
  if ((bits & 0x7FFFFFFFu) > kF32Infinity) return static_cast<u16>((bits | kF32QuietBit) >> 16);
  return static_cast<u16>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}

void f16_to_f32_n(const u16* source, u64 n, f32* out) {
  for (u64 i = 0; i < n; ++i) out[i] = f16_to_f32(source[i]);
}

void f32_to_f16_n(const f32* source, u64 n, u16* out) {
  for (u64 i = 0; i < n; ++i) out[i] = f32_to_f16(source[i]);
}

}  // namespace tarn::kernels
