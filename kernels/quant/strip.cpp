#include "kernels/quant/strip.h"

#include <cstring>

#include "kernels/common/half.h"

namespace tarn::kernels {
namespace {

f32 f16_at(const u8* bytes) {
  u16 half;
  std::memcpy(&half, bytes, sizeof half);
  return f16_to_f32(half);
}

// The 12 bytes of q4_k and q5_k hold eight 6-bit scales and eight 6-bit minima: bytes 0..3 and 4..7
// the low six bits of the first four of each; the rest have four bits in bytes 8..11 and their
// upper two in the top of bytes 0..7. `stride` is 1 in the file and 16 in a tile.
void read_scale_min(const u8* scales, u32 stride, u32 strip_idx, Strip& strip) {
  const u32 j = strip_idx & 3u;
  const u32 scale_byte = scales[u64{j} * stride];
  const u32 min_byte = scales[u64{j + 4} * stride];
  if (strip_idx < 4) {
    strip.scale[0] = static_cast<i32>(scale_byte & 63u);
    strip.min = static_cast<i32>(min_byte & 63u);
  } else {
    const u32 low = scales[u64{j + 8} * stride];
    strip.scale[0] = static_cast<i32>((low & 15u) | (scale_byte >> 6 << 4));
    strip.min = static_cast<i32>((low >> 4) | (min_byte >> 6 << 4));
  }
  strip.scale[1] = strip.scale[0];
}

Strip empty_strip(i32 zero) {
  return {.codes = {}, .zero = zero, .d = 0, .dmin = 0, .scale = {1, 1}, .min = 0};
}

Strip file_q8_0(const u8* block) {
  Strip strip = empty_strip(128);
  strip.d = f16_at(block + kFileQ8_0.d);
  for (u32 e = 0; e < kStripElems; ++e) {
    strip.codes[e] = static_cast<u8>(block[kFileQ8_0.low + e] ^ 0x80u);
  }
  return strip;
}

Strip file_q4_0(const u8* block) {
  Strip strip = empty_strip(8);
  strip.d = f16_at(block + kFileQ4_0.d);
  for (u32 e = 0; e < 16; ++e) {
    const u8 byte = block[kFileQ4_0.low + e];
    strip.codes[e] = byte & 15u;
    strip.codes[16 + e] = byte >> 4;
  }
  return strip;
}

// As q4_0, with bit 4 of element e in bit e of the four high bytes.
Strip file_q5_0(const u8* block) {
  Strip strip = empty_strip(16);
  strip.d = f16_at(block + kFileQ5_0.d);
  for (u32 e = 0; e < kStripElems; ++e) {
    const u32 nibble = (u32{block[kFileQ5_0.low + e % 16]} >> (e / 16 * 4)) & 15u;
    const u32 upper = (u32{block[kFileQ5_0.high + e / 8]} >> (e % 8)) & 1u;
    strip.codes[e] = static_cast<u8>(nibble | upper << 4);
  }
  return strip;
}

// q4_k and q5_k: 32 bytes hold 64 elements, the first 32 in the low nibbles. In q5_k bit strip_idx
// of high byte e is bit 4 of element e.
Strip file_q4_k_q5_k(const u8* block, u32 strip_idx, const FileBlock& at) {
  Strip strip = empty_strip(0);
  strip.d = f16_at(block + at.d);
  strip.dmin = f16_at(block + at.dmin);
  read_scale_min(block + at.scales, 1, strip_idx, strip);
  const u8* low = block + at.low + u64{strip_idx / 2} * 32;
  const u32 shift = (strip_idx & 1u) * 4;
  for (u32 e = 0; e < kStripElems; ++e) {
    strip.codes[e] = static_cast<u8>((u32{low[e]} >> shift) & 15u);
    if (at.high != 0) {
      strip.codes[e] |= static_cast<u8>(((u32{block[at.high + e]} >> strip_idx) & 1u) << 4);
    }
  }
  return strip;
}

// q6_k: each half of the block (4 strips) has 64 bytes of low nibbles, strips 0 and 1 in their low
// and 2 and 3 in their high halves, and 32 bytes with two upper bits for each of its strips.
Strip file_q6_k(const u8* block, u32 strip_idx) {
  Strip strip = empty_strip(32);
  strip.d = f16_at(block + kFileQ6K.d);
  const u32 half = strip_idx / 4, quarter = strip_idx % 4;
  const u8* low = block + kFileQ6K.low + u64{half} * 64 + u64{quarter & 1u} * 32;
  const u8* high = block + kFileQ6K.high + u64{half} * 32;
  for (u32 e = 0; e < kStripElems; ++e) {
    const u32 nibble = (u32{low[e]} >> (quarter / 2 * 4)) & 15u;
    const u32 upper = (u32{high[e]} >> (quarter * 2)) & 3u;
    strip.codes[e] = static_cast<u8>(nibble | upper << 4);
  }
  for (u32 i = 0; i < 2; ++i) {
    strip.scale[i] = static_cast<i8>(block[kFileQ6K.scales + strip_idx * 2 + i]);
  }
  return strip;
}

// Byte of row `row` that holds element e's low nibble (elements e and e + 16 share it).
u64 nibble_at(u32 row, u32 e) { return u64{(e & 15u) / 4} * 64 + u64{row} * 4 + e % 4; }

void read_nibbles(const u8* low, u32 row, u8* codes) {
  for (u32 e = 0; e < kStripElems; ++e) {
    codes[e] = static_cast<u8>((u32{low[nibble_at(row, e)]} >> (e / 16 * 4)) & 15u);
  }
}

// q5_0 and q5_k: bit e / 4 of byte e % 4 is bit 4 of element e.
void read_bit_4(const u8* high, u32 row, u8* codes) {
  for (u32 e = 0; e < kStripElems; ++e) {
    const u32 upper = (u32{high[u64{row} * 4 + e % 4]} >> (e / 4)) & 1u;
    codes[e] |= static_cast<u8>(upper << 4);
  }
}

}  // namespace

Strip strip_from_file(TensorType type, const u8* block, u32 strip_idx) {
  switch (type) {
    case TensorType::q8_0:
      return file_q8_0(block);
    case TensorType::q4_0:
      return file_q4_0(block);
    case TensorType::q5_0:
      return file_q5_0(block);
    case TensorType::q4_k:
      return file_q4_k_q5_k(block, strip_idx, kFileQ4K);
    case TensorType::q5_k:
      return file_q4_k_q5_k(block, strip_idx, kFileQ5K);
    case TensorType::q6_k:
      return file_q6_k(block, strip_idx);
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
      break;
  }
  return empty_strip(0);  // the float types have no strips
}

Strip strip_from_tile(TensorType type, const u8* block, u32 row, u32 strip_idx) {
  Strip strip = empty_strip(0);
  strip.d = f16_at(block + u64{row} * 2);
  switch (type) {
    case TensorType::q8_0:
      strip.zero = 128;
      for (u32 e = 0; e < kStripElems; ++e) {
        const u8 byte = block[kTileQ8_0.strips + u64{e / 4} * 64 + u64{row} * 4 + e % 4];
        strip.codes[e] = byte ^ 0x80u;
      }
      break;
    case TensorType::q4_0:
      strip.zero = 8;
      read_nibbles(block + kTileQ4_0.strips, row, strip.codes);
      break;
    case TensorType::q5_0:
      strip.zero = 16;
      read_nibbles(block + kTileQ5_0.strips, row, strip.codes);
      read_bit_4(block + kTileQ5_0.strips + kTileQ5_0.high, row, strip.codes);
      break;
    case TensorType::q4_k:
    case TensorType::q5_k: {
      const TileBlock& at = type == TensorType::q4_k ? kTileQ4K : kTileQ5K;
      strip.dmin = f16_at(block + at.dmin + u64{row} * 2);
      read_scale_min(block + at.scales + row, kTileRows, strip_idx, strip);
      const u8* bytes = block + at.strips + u64{strip_idx} * at.strip_bytes;
      read_nibbles(bytes, row, strip.codes);
      if (at.high != 0) read_bit_4(bytes + at.high, row, strip.codes);
      break;
    }
    case TensorType::q6_k: {
      strip.zero = 32;
      for (u32 i = 0; i < 2; ++i) {
        const u64 sub_block = u64{strip_idx} * 2 + i;
        strip.scale[i] = static_cast<i8>(block[kTileQ6K.scales + sub_block * kTileRows + row]);
      }
      const u8* bytes = block + kTileQ6K.strips + u64{strip_idx} * kTileQ6K.strip_bytes;
      read_nibbles(bytes, row, strip.codes);
      for (u32 e = 0; e < kStripElems; ++e) {
        const u64 at = kTileQ6K.high + u64{e / 16} * 64 + u64{row} * 4 + e % 4;
        const u32 upper = (u32{bytes[at]} >> (e % 16 / 4 * 2)) & 3u;
        strip.codes[e] |= static_cast<u8>(upper << 4);
      }
      break;
    }
    case TensorType::f32:
    case TensorType::f16:
    case TensorType::bf16:
      break;
  }
  return strip;
}

void strip_codes_to_tile(TensorType type, const Strip& strip, u8* block, u32 row, u32 strip_idx) {
  if (type == TensorType::q8_0) {
    for (u32 e = 0; e < kStripElems; ++e) {
      const u64 at = kTileQ8_0.strips + u64{e / 4} * 64 + u64{row} * 4 + e % 4;
      block[at] = strip.codes[e] ^ 0x80u;
    }
    return;
  }
  const TileBlock& at = type == TensorType::q4_0   ? kTileQ4_0
                        : type == TensorType::q5_0 ? kTileQ5_0
                        : type == TensorType::q4_k ? kTileQ4K
                        : type == TensorType::q5_k ? kTileQ5K
                                                   : kTileQ6K;
  u8* bytes = block + at.strips + u64{strip_idx} * at.strip_bytes;
  for (u32 e = 0; e < kStripElems; ++e) {
    const u32 code = strip.codes[e];
    bytes[nibble_at(row, e)] |= static_cast<u8>((code & 15u) << (e / 16 * 4));
    if (type == TensorType::q5_0 || type == TensorType::q5_k) {
      bytes[at.high + u64{row} * 4 + e % 4] |= static_cast<u8>(code >> 4 << (e / 4));
    } else if (type == TensorType::q6_k) {
      const u64 high = at.high + u64{e / 16} * 64 + u64{row} * 4 + e % 4;
      bytes[high] |= static_cast<u8>(code >> 4 << (e % 16 / 4 * 2));
    }
  }
}

}  // namespace tarn::kernels
