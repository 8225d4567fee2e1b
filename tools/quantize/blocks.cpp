#include "tools/quantize/blocks.h"

#include <cstring>
#include <stdexcept>

#include "kernels/common/half.h"

namespace tarn::tools {
namespace {

using kernels::TensorType;

void put_u16(u16 value, u8* out) { std::memcpy(out, &value, sizeof value); }

// Elements e and e + 16 share a byte.
void put_nibbles_of_32(const u8* codes, u8* nibbles) {
  for (u32 e = 0; e < 16; ++e) {
    nibbles[e] = static_cast<u8>((codes[e] & 15u) | (codes[16 + e] & 15u) << 4);
  }
}

void put_q8_0(const BlockParts& parts, u8* block) {
  for (u32 e = 0; e < 32; ++e) block[2 + e] = parts.codes[e] ^ 0x80u;
}

// Bit 4 of element e is bit e of the four bytes before the nibbles.
void put_q5_0(const BlockParts& parts, u8* block) {
  for (u32 e = 0; e < 32; ++e) {
    block[2 + e / 8] |= static_cast<u8>((u32{parts.codes[e]} >> 4) << (e % 8));
  }
  put_nibbles_of_32(parts.codes.data(), block + 6);
}

// Eight 6-bit scales and minima in 12 bytes. The first four of each are whole. The others have
// their low nibbles in bytes 8..11 and their upper two bits above the first four.
void put_scales_and_minima(const BlockParts& parts, u8* out) {
  const auto byte = [](i32 low, i32 on_top) { return static_cast<u8>(low | on_top >> 4 << 6); };
  for (u32 j = 0; j < 4; ++j) {
    out[j] = byte(parts.scales[j], parts.scales[j + 4]);
    out[j + 4] = byte(parts.minima[j], parts.minima[j + 4]);
    out[j + 8] = static_cast<u8>((parts.scales[j + 4] & 15) | (parts.minima[j + 4] & 15) << 4);
  }
}

// q4_k and q5_k: 32 bytes hold the nibbles of 64 elements, the first 32 of them in the low halves;
// in q5_k bit s of high byte i is bit 4 of element 32 s + i.
void put_k(TensorType type, const BlockParts& parts, u8* block) {
  put_u16(parts.dmin, block + 2);
  put_scales_and_minima(parts, block + 4);
  u8* nibbles = type == TensorType::q4_k ? block + 16 : block + 48;
  for (u32 e = 0; e < 256; ++e) {
    const u32 code = parts.codes[e];
    nibbles[e / 64 * 32 + e % 32] |= static_cast<u8>((code & 15u) << (e % 64 / 32 * 4));
    if (type == TensorType::q5_k) block[16 + e % 32] |= static_cast<u8>((code >> 4) << (e / 32));
  }
}

// Each half of the block has 64 bytes of nibbles, quarters 0 and 1 of it in the low halves, 2 and 3
// in the high ones, and 32 bytes with two upper bits for each of its quarters.
void put_q6_k(const BlockParts& parts, u8* block) {
  for (u32 j = 0; j < 16; ++j) block[192 + j] = static_cast<u8>(parts.scales[j]);
  put_u16(parts.d, block + 208);
  for (u32 e = 0; e < 256; ++e) {
    const u32 code = parts.codes[e];
    const u32 half = e / 128, quarter = e % 128 / 32, within = e % 32;
    block[half * 64 + quarter % 2 * 32 + within] |=
        static_cast<u8>((code & 15u) << (quarter / 2 * 4));
    block[128 + half * 32 + within] |= static_cast<u8>((code >> 4) << (quarter * 2));
  }
}

}  // namespace

i32 code_of_zero(TensorType type) {
  switch (type) {
    case TensorType::q8_0:
      return 128;
    case TensorType::q4_0:
      return 8;
    case TensorType::q5_0:
      return 16;
    case TensorType::q6_k:
      return 32;
    default:
      return 0;
  }
}

i32 code_max(TensorType type) {
  switch (type) {
    case TensorType::q8_0:
      return 255;
    case TensorType::q4_0:
    case TensorType::q4_k:
      return 15;
    case TensorType::q5_0:
    case TensorType::q5_k:
      return 31;
    case TensorType::q6_k:
      return 63;
    default:
      return 0;
  }
}

void put_floats(TensorType type, std::span<const f32> values, u8* out) {
  if (type == TensorType::f32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (u64 i = 0; i < values.size(); ++i) {
    const f32 value = values[i];
    put_u16(type == TensorType::f16 ? kernels::f32_to_f16(value) : kernels::f32_to_bf16(value),
            out + 2 * i);
  }
}

void put_block(TensorType type, const BlockParts& parts, u8* block) {
  std::memset(block, 0, kernels::type_traits(type).block_bytes);
  if (type == TensorType::q6_k) return put_q6_k(parts, block);
  put_u16(parts.d, block);
  switch (type) {
    case TensorType::q8_0:
      return put_q8_0(parts, block);
    case TensorType::q4_0:
      return put_nibbles_of_32(parts.codes.data(), block + 2);
    case TensorType::q5_0:
      return put_q5_0(parts, block);
    case TensorType::q4_k:
    case TensorType::q5_k:
      return put_k(type, parts, block);
    default:
      throw std::invalid_argument("a float type has no blocks");
  }
}

}  // namespace tarn::tools
