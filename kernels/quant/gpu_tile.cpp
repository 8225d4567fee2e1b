#include "kernels/quant/gpu_tile.h"

#include <cstring>

#include "kernels/quant/strip.h"
#include "platform/base/assert.h"

namespace tarn::kernels {
namespace {

// Offsets in a block of the file.
struct At {
  u32 d, dmin, scales, low, high;
};
constexpr At kFileQ8_0 = {0, 0, 0, 2, 0};
constexpr At kFileQ4K = {0, 2, 4, 16, 0};
constexpr At kFileQ6K = {208, 0, 192, 0, 128};

constexpr u64 kHalf = kStripElems / 2;  // a code byte holds elements i and i + 16

void put_u32(u8* at, u32 value) { std::memcpy(at, &value, sizeof value); }

void repack_q8_0(const u8* block, u64 k, u64 row, u8* tile) {
  u8* codes = tile + row * k;
  u8* d = tile + gpu_q8_0_d(k) + row * (k / 32) * 2;
  for (u64 i = 0; i < k / 32; ++i, block += 34, codes += 32, d += 2) {
    std::memcpy(d, block + kFileQ8_0.d, 2);
    std::memcpy(codes, block + kFileQ8_0.low, 32);
  }
}

// The 12 bytes' eight scales and minima (strip.cpp says how they lie), 12 bits a strip.
void repack_scales(const u8* scales, u8* head) {
  u32 words[3] = {0, 0, 0};
  for (u32 s = 0; s < 8; ++s) {
    const u32 j = s % 4;
    const u32 scale_byte = scales[j], min_byte = scales[j + 4], low = scales[j + 8];
    const u32 scale = s < 4 ? scale_byte & 63u : (low & 15u) | (scale_byte >> 6 << 4);
    const u32 min = s < 4 ? min_byte & 63u : (low >> 4) | (min_byte >> 6 << 4);
    const u64 bits = u64{scale | min << 6} << (12 * s % 32);
    words[12 * s / 32] |= static_cast<u32>(bits);
    if (12 * s / 32 < 2) words[12 * s / 32 + 1] |= static_cast<u32>(bits >> 32);
  }
  for (u32 i = 0; i < 3; ++i) put_u32(head + 4 * i, words[i]);
}

void repack_q4_k(const u8* block, u64 k, u64 row, u8* tile) {
  u8* codes = tile + row * (k / 2);
  u8* head = tile + gpu_q4_k_heads(k) + row * (k / 256) * 16;
  for (u64 b = 0; b < k / 256; ++b, block += 144, head += 16) {
    std::memcpy(head, block + kFileQ4K.d, 2);
    std::memcpy(head + 2, block + kFileQ4K.dmin, 2);
    repack_scales(block + kFileQ4K.scales, head + 4);
    for (u32 pair = 0; pair < 4; ++pair, codes += 32) {
      const u8* source = block + kFileQ4K.low + u64{pair} * 32;
      for (u64 i = 0; i < kHalf; ++i) {
        codes[i] = static_cast<u8>((source[i] & 15u) | (source[i + kHalf] & 15u) << 4);
        codes[i + kHalf] = static_cast<u8>((source[i] >> 4) | (source[i + kHalf] & 0xf0u));
      }
    }
  }
}

void repack_q6_k(const u8* block, u64 k, u64 row, u8* tile) {
  u8* low = tile + row * (k / 2);
  u8* high = tile + gpu_q6_k_high(k) + row * (k / 4);
  u8* scales = tile + gpu_q6_k_scales(k) + row * (k / 16);
  u8* d = tile + gpu_q6_k_d(k) + row * (k / 256) * 2;
  for (u64 b = 0; b < k / 256; ++b, block += 210, scales += 16, d += 2) {
    std::memcpy(d, block + kFileQ6K.d, 2);
    std::memcpy(scales, block + kFileQ6K.scales, 16);
    for (u32 s = 0; s < 8; ++s, low += 16, high += 8) {
      const u32 quarter = s % 4;
      const u8* nibbles = block + kFileQ6K.low + u64{s / 4} * 64 + u64{quarter % 2} * 32;
      const u8* uppers = block + kFileQ6K.high + u64{s / 4} * 32;
      for (u64 i = 0; i < kHalf; ++i) {
        const u32 first = u32{nibbles[i]} >> (quarter / 2 * 4) & 15u;
        const u32 second = u32{nibbles[i + kHalf]} >> (quarter / 2 * 4) & 15u;
        low[i] = static_cast<u8>(first | second << 4);
      }
      for (u64 at = 0; at < 8; ++at) {
        u32 byte = 0;
        for (u64 g = 0; g < 4; ++g) {
          const u32 upper = u32{uppers[at / 4 * kHalf + 4 * g + at % 4]} >> (2 * quarter) & 3u;
          byte |= (upper ^ 2u) << (2 * g);
        }
        high[at] = static_cast<u8>(byte);
      }
    }
  }
}

}  // namespace

void gpu_repack_rows(const TileArgs& args) {
  TARN_ASSERT(has_gpu_layout(args.type));
  TARN_ASSERT(args.n_rows >= 1 && args.n_rows <= kTileRows);
  u8* tile = static_cast<u8*>(args.tile);
  const u8* source = static_cast<const u8*>(args.rows);
  const u64 bytes = row_bytes(args.type, args.k);
  if (args.n_rows < kTileRows) std::memset(tile, 0, gpu_tile_bytes(args.type, args.k));
  for (u64 row = 0; row < args.n_rows; ++row, source += bytes) {
    switch (args.type) {
      case TensorType::q8_0:
        repack_q8_0(source, args.k, row, tile);
        break;
      case TensorType::q4_k:
        repack_q4_k(source, args.k, row, tile);
        break;
      case TensorType::q6_k:
        repack_q6_k(source, args.k, row, tile);
        break;
      default:
        std::memcpy(tile + row * bytes, source, bytes);
        break;
    }
  }
}

}  // namespace tarn::kernels
