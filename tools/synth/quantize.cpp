#include "tools/synth/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tools/support/gguf_write.h"

namespace tarn::synth {
namespace {

using kernels::TensorType;
using tools::bf16_bits;
using tools::f16_bits;

f32 largest_magnitude(std::span<const f32> values) {
  f32 largest = 0;
  for (const f32 value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// A scale with seven significant bits, so that f16 holds its multiples by 7 and 15 as well: q4_k's
// and q5_k's minima then cancel their middle code exactly.
f32 short_scale(f32 scale) {
  const u32 bits = std::bit_cast<u32>(scale);
  return std::bit_cast<f32>((bits + 0x10000u) & 0xFFFE0000u);
}

i32 code(f32 value, f32 scale, i32 code_max) {
  if (scale == 0) return 0;
  return std::clamp(static_cast<i32>(std::lround(value / scale)), -code_max, code_max);
}

void put_f16(u8* out, f32 value) {
  const u16 bits = f16_bits(value);
  std::memcpy(out, &bits, sizeof bits);
}

void put_q8_0(std::span<const f32> values, u8* block) {
  const f32 scale = short_scale(largest_magnitude(values) / 127);
  put_f16(block, scale);
  for (u64 i = 0; i < 32; ++i) block[2 + i] = static_cast<u8>(code(values[i], scale, 127));
}

void put_q4_0(std::span<const f32> values, u8* block) {
  const f32 scale = short_scale(largest_magnitude(values) / 7);
  put_f16(block, scale);
  for (u64 i = 0; i < 16; ++i) {
    const i32 low = code(values[i], scale, 7) + 8;
    const i32 high = code(values[i + 16], scale, 7) + 8;
    block[2 + i] = static_cast<u8>(low | high << 4);
  }
}

// As q4_0 behind four bytes of fifth bits, element by element.
void put_q5_0(std::span<const f32> values, u8* block) {
  const f32 scale = short_scale(largest_magnitude(values) / 15);
  put_f16(block, scale);
  for (u64 i = 0; i < 32; ++i) {
    const i32 value = code(values[i], scale, 15) + 16;
    block[6 + i % 16] |= static_cast<u8>((value & 15) << (i / 16 * 4));
    block[2 + i / 8] |= static_cast<u8>((value >> 4) << (i % 8));
  }
}

// Integer scales of n_subs sub-blocks, up to scale_max, and the f32 that one unit is worth.
template <u64 n_subs>
f32 sub_scales(std::span<const f32> values, i32 code_max, i32 scale_max,
               std::array<i32, n_subs>& scales) {
  const f32 largest = largest_magnitude(values);
  const f32 unit = short_scale(largest / static_cast<f32>(code_max * scale_max));
  const u64 n_each = values.size() / n_subs;
  for (u64 j = 0; j < n_subs; ++j) {
    const f32 magnitude = largest_magnitude(values.subspan(j * n_each, n_each));
    scales[j] = unit == 0 ? 0 : code(magnitude / static_cast<f32>(code_max), unit, scale_max);
  }
  return unit;
}

// q4_k and q5_k: codes 0 .. 2 * middle around the middle, which the minimum makes zero.
void put_k(i32 middle, std::span<const f32> values, u8* block) {
  std::array<i32, 8> scales{};
  const f32 unit = sub_scales<8>(values, middle, 63, scales);
  put_f16(block, unit);
  put_f16(block + 2, unit * static_cast<f32>(middle));
  for (u64 j = 0; j < 4; ++j) {
    const i32 low = scales[j], high = scales[j + 4];
    block[4 + j] = block[8 + j] = static_cast<u8>(low | high >> 4 << 6);
    block[12 + j] = static_cast<u8>((high & 15) | (high & 15) << 4);
  }
  u8* high_bits = block + 16;  // q5_k only
  u8* nibbles = middle == 7 ? block + 16 : block + 48;
  for (u64 i = 0; i < 256; ++i) {
    const f32 scale = unit * static_cast<f32>(scales[i / 32]);
    const i32 value = code(values[i], scale, middle) + middle;
    const u64 pair = i / 64, within = i % 32;
    const bool upper = i % 64 >= 32;
    nibbles[pair * 32 + within] |= static_cast<u8>((value & 15) << (upper ? 4 : 0));
    if (middle == 15) high_bits[within] |= static_cast<u8>((value >> 4) << (i / 32));
  }
}

void put_q6_k(std::span<const f32> values, u8* block) {
  std::array<i32, 16> scales{};
  const f32 unit = sub_scales<16>(values, 31, 127, scales);
  put_f16(block + 208, unit);
  for (u64 j = 0; j < 16; ++j) block[192 + j] = static_cast<u8>(scales[j]);
  for (u64 i = 0; i < 256; ++i) {
    const f32 scale = unit * static_cast<f32>(scales[i / 16]);
    const i32 value = code(values[i], scale, 31) + 32;
    const u64 half = i / 128, quarter = i % 128 / 32, within = i % 32;
    const u64 low_at = half * 64 + quarter % 2 * 32 + within;
    block[low_at] |= static_cast<u8>((value & 15) << (quarter / 2 * 4));
    block[128 + half * 32 + within] |= static_cast<u8>((value >> 4) << (quarter * 2));
  }
}

void put_block(TensorType type, std::span<const f32> values, u8* block) {
  switch (type) {
    case TensorType::f32: {
      std::memcpy(block, values.data(), sizeof(f32));
      return;
    }
    case TensorType::f16:
      return put_f16(block, values[0]);
    case TensorType::bf16: {
      const u16 bits = bf16_bits(values[0]);
      std::memcpy(block, &bits, sizeof bits);
      return;
    }
    case TensorType::q8_0:
      return put_q8_0(values, block);
    case TensorType::q4_0:
      return put_q4_0(values, block);
    case TensorType::q5_0:
      return put_q5_0(values, block);
    case TensorType::q4_k:
      return put_k(7, values, block);
    case TensorType::q5_k:
      return put_k(15, values, block);
    case TensorType::q6_k:
      return put_q6_k(values, block);
  }
}

}  // namespace

std::vector<u8> quantize(TensorType type, std::span<const f32> values) {
  const auto& traits = kernels::type_traits(type);
  std::vector<u8> out(values.size() / traits.block_elems * traits.block_bytes);
  for (u64 i = 0; i < values.size() / traits.block_elems; ++i) {
    put_block(type, values.subspan(i * traits.block_elems, traits.block_elems),
              out.data() + i * traits.block_bytes);
  }
  return out;
}

}  // namespace tarn::synth
