#include "tools/quantize/blocks.h"

#include <cstring>

#include "kernels/common/half.h"
#include "platform/base/assert.h"

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

// Bit 4 of element e is bit e of four bytes.
void put_bit_4_of_32(const u8* codes, u8* high) {
  for (u32 e = 0; e < 32; ++e) high[e / 8] |= static_cast<u8>((u32{codes[e]} >> 4) << (e % 8));
}

void put_q8_0(const BlockParts& parts, u8* block) {
  put_u16(parts.d, block);
  for (u32 e = 0; e < 32; ++e) block[2 + e] = parts.codes[e] ^ 0x80u;
}

// q4_0 and iq4_nl.
void put_d_nibbles(const BlockParts& parts, u8* block) {
  put_u16(parts.d, block);
  put_nibbles_of_32(parts.codes.data(), block + 2);
}

void put_q4_1(const BlockParts& parts, u8* block) {
  put_u16(parts.d, block);
  put_u16(parts.dmin, block + 2);
  put_nibbles_of_32(parts.codes.data(), block + 4);
}

void put_q5_0(const BlockParts& parts, u8* block) {
  put_u16(parts.d, block);
  put_bit_4_of_32(parts.codes.data(), block + 2);
  put_nibbles_of_32(parts.codes.data(), block + 6);
}

void put_q5_1(const BlockParts& parts, u8* block) {
  put_u16(parts.d, block);
  put_u16(parts.dmin, block + 2);
  put_bit_4_of_32(parts.codes.data(), block + 4);
  put_nibbles_of_32(parts.codes.data(), block + 8);
}

void put_mxfp4(const BlockParts& parts, u8* block) {
  block[0] = static_cast<u8>(parts.d);
  put_nibbles_of_32(parts.codes.data(), block + 1);
}

// Two bits of each of 256 elements: the four quarters of a half share 32 bytes.
void put_pairs_of_bits(const BlockParts& parts, u8* out) {
  for (u32 e = 0; e < 256; ++e) {
    out[e / 128 * 32 + e % 32] |= static_cast<u8>((parts.codes[e] & 3u) << (e % 128 / 32 * 2));
  }
}

void put_q2_k(const BlockParts& parts, u8* block) {
  for (u32 j = 0; j < 16; ++j) {
    block[j] = static_cast<u8>((parts.scales[j] & 15) | (parts.minima[j] & 15) << 4);
  }
  put_pairs_of_bits(parts, block + 16);
  put_u16(parts.d, block + 80);
  put_u16(parts.dmin, block + 82);
}

// Bit s of high byte i is bit 2 of element 32 s + i. A scale plus 32 has six bits: the low four of
// scales j and j + 8 share byte j, the upper two of every fourth scale share one of four bytes.
void put_q3_k(const BlockParts& parts, u8* block) {
  for (u32 e = 0; e < 256; ++e) {
    block[e % 32] |= static_cast<u8>((u32{parts.codes[e]} >> 2) << (e / 32));
  }
  put_pairs_of_bits(parts, block + 32);
  for (u32 j = 0; j < 16; ++j) {
    const u32 scale = static_cast<u32>(parts.scales[j] + 32);
    block[96 + j % 8] |= static_cast<u8>((scale & 15u) << (j / 8 * 4));
    block[104 + j % 4] |= static_cast<u8>((scale >> 4) << (j / 4 * 2));
  }
  put_u16(parts.d, block + 108);
}

// A scale plus 32 has six bits: the low four of two scales share a byte, the upper two are in one
// 16-bit word.
void put_iq4_xs(const BlockParts& parts, u8* block) {
  put_u16(parts.d, block);
  u32 upper = 0;
  for (u32 j = 0; j < 8; ++j) {
    const u32 scale = static_cast<u32>(parts.scales[j] + 32);
    upper |= (scale >> 4) << (2 * j);
    block[4 + j / 2] |= static_cast<u8>((scale & 15u) << (j % 2 * 4));
    put_nibbles_of_32(parts.codes.data() + u64{j} * 32, block + 8 + u64{j} * 16);
  }
  put_u16(static_cast<u16>(upper), block + 2);
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

// The head of q4_k and q5_k, and the nibbles: 32 bytes hold those of 64 elements, the first 32 of
// them in the low halves.
void put_k(const BlockParts& parts, u8* block, u8* nibbles) {
  put_u16(parts.d, block);
  put_u16(parts.dmin, block + 2);
  put_scales_and_minima(parts, block + 4);
  for (u32 e = 0; e < 256; ++e) {
    nibbles[e / 64 * 32 + e % 32] |= static_cast<u8>((parts.codes[e] & 15u) << (e % 64 / 32 * 4));
  }
}

void put_q4_k(const BlockParts& parts, u8* block) { put_k(parts, block, block + 16); }

// Bit s of high byte i is bit 4 of element 32 s + i.
void put_q5_k(const BlockParts& parts, u8* block) {
  put_k(parts, block, block + 48);
  for (u32 e = 0; e < 256; ++e) {
    block[16 + e % 32] |= static_cast<u8>((u32{parts.codes[e]} >> 4) << (e / 32));
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

// The formats' tables: iq4's sixteen levels, and mxfp4's doubled values (OCP Microscaling Formats
// 1.0, E2M1), so that d is half of its scale.
constexpr i8 kIq4Levels[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                             1,    13,   25,  38,  53,  69,  89,  113};
constexpr i8 kE2m1Levels[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr BlockForm::Range kOne{1, 1}, kNone{0, 0}, kOffset{-1, -1};

constexpr BlockForm kForms[] = {
    {TensorType::q8_0, 1, kOne, kNone, 255, 128, {}, put_q8_0},
    {TensorType::q4_0, 1, kOne, kNone, 15, 8, {}, put_d_nibbles},
    {TensorType::q4_1, 1, kOne, kOffset, 15, 0, {}, put_q4_1},
    {TensorType::q5_0, 1, kOne, kNone, 31, 16, {}, put_q5_0},
    {TensorType::q5_1, 1, kOne, kOffset, 31, 0, {}, put_q5_1},
    {TensorType::q2_k, 16, {0, 15}, {0, 15}, 3, 0, {}, put_q2_k},
    {TensorType::q3_k, 16, {-32, 31}, kNone, 7, 4, {}, put_q3_k},
    {TensorType::q4_k, 8, {0, 63}, {0, 63}, 15, 0, {}, put_q4_k},
    {TensorType::q5_k, 8, {0, 63}, {0, 63}, 31, 0, {}, put_q5_k},
    {TensorType::q6_k, 16, {-128, 127}, kNone, 63, 32, {}, put_q6_k},
    {TensorType::iq4_nl, 1, kOne, kNone, 15, 0, kIq4Levels, put_d_nibbles},
    {TensorType::iq4_xs, 8, {-32, 31}, kNone, 15, 0, kIq4Levels, put_iq4_xs},
    {TensorType::mxfp4, 1, kOne, kNone, 15, 0, kE2m1Levels, put_mxfp4},
};

}  // namespace

const BlockForm& block_form(TensorType type) {
  const BlockForm* found = nullptr;
  for (const BlockForm& form : kForms) {
    if (form.type == type) found = &form;
  }
  TARN_ASSERT(found != nullptr);
  return *found;
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
  block_form(type).put(parts, block);
}

}  // namespace tarn::tools
