// Goal    the GPU's layout keeps every bit of a row, needs no more bytes, and is what gpu_tile.h
//         says.
// Method  random rows are repacked, then read back by a reader written from the header's text
//         alone; codes, scales and minima must be those that strip.h finds in the file. Fewer than
//         16 rows leave zeros; a canary behind the tile.
#include <doctest/doctest.h>

#include <cstring>

#include "kernels/common/half.h"
#include "kernels/quant/gpu_tile.h"
#include "tests/kernels/quant/random_rows.h"

namespace tarn::kernels::gpu_tile_test {
namespace {

constexpr TensorType kTypes[] = {TensorType::f16, TensorType::q8_0, TensorType::q4_k,
                                 TensorType::q6_k};

u16 u16_at(const u8* at) { return static_cast<u16>(at[0] | at[1] << 8); }
u32 u32_at(const u8* at) { return u16_at(at) | u32{u16_at(at + 2)} << 16; }
u32 bits_of(f32 value) { return __builtin_bit_cast(u32, value); }

// Strip s of a row, from the words of gpu_tile.h.
Strip read_strip(TensorType type, const u8* tile, u64 k, u64 row, u64 s) {
  Strip strip{};
  strip.scale[0] = strip.scale[1] = 1;
  if (type == TensorType::q8_0) {
    strip.zero = 128;
    strip.d = f16_to_f32(u16_at(tile + 16 * k + (row * (k / 32) + s) * 2));
    for (u64 e = 0; e < 32; ++e) strip.codes[e] = tile[row * k + s * 32 + e] ^ 0x80u;
    return strip;
  }
  const u8* codes = tile + (row * (k / 32) + s) * 16;
  for (u64 i = 0; i < 16; ++i) {
    strip.codes[i] = codes[i] & 15u;
    strip.codes[16 + i] = codes[i] >> 4;
  }
  if (type == TensorType::q4_k) {
    const u8* head = tile + 16 * (k / 2) + (row * (k / 256) + s / 8) * 16;
    strip.d = f16_to_f32(u16_at(head));
    strip.dmin = f16_to_f32(u16_at(head + 2));
    u32 bits = 0;
    for (u32 i = 0; i < 12; ++i) {
      const u64 at = 12 * (s % 8) + i;
      bits |= (u32_at(head + 4 + at / 32 * 4) >> (at % 32) & 1u) << i;
    }
    strip.scale[0] = strip.scale[1] = static_cast<i32>(bits & 63u);
    strip.min[0] = strip.min[1] = static_cast<i32>(bits >> 6);
    return strip;
  }
  strip.zero = 32;
  const u8* high = tile + 16 * (k / 2) + (row * (k / 32) + s) * 8;
  for (u64 e = 0; e < 32; ++e) {
    const u32 upper = (u32{high[e / 16 * 4 + e % 4]} >> (e % 16 / 4 * 2) & 3u) ^ 2u;
    strip.codes[e] |= static_cast<u8>(upper << 4);
  }
  const u8* scales = tile + 16 * (k / 2 + k / 4) + row * (k / 16) + s * 2;
  strip.scale[0] = static_cast<i8>(scales[0]);
  strip.scale[1] = static_cast<i8>(scales[1]);
  strip.d =
      f16_to_f32(u16_at(tile + 16 * (k / 2 + k / 4 + k / 16) + (row * (k / 256) + s / 8) * 2));
  return strip;
}

void check_strip(const Strip& got, const Strip& want) {
  REQUIRE(std::memcmp(got.codes, want.codes, 32) == 0);
  REQUIRE(bits_of(got.d) == bits_of(want.d));
  REQUIRE(bits_of(got.dmin) == bits_of(want.dmin));
  REQUIRE(got.zero == want.zero);
  REQUIRE(got.scale[0] == want.scale[0]);
  REQUIRE(got.scale[1] == want.scale[1]);
  REQUIRE(got.min[0] == want.min[0]);
  REQUIRE(got.min[1] == want.min[1]);
}

TEST_CASE("repacked rows hold what the file's rows hold, in as many bytes") {
  tarn::test::Random random(tarn::test::seed_from_environment());
  CAPTURE(random.seed());
  for (const TensorType type : kTypes) {
    CAPTURE(type_traits(type).name);
    const TypeTraits& traits = type_traits(type);
    for (const u64 n_blocks : {1u, 3u, 8u}) {
      for (const u32 n_rows : {1u, 5u, 16u}) {
        const u64 k = n_blocks * (traits.block_elems == 1 ? 8 : traits.block_elems);
        const u64 bytes = row_bytes(type, k);
        REQUIRE(gpu_tile_bytes(type, k) == tiled_bytes(type, 16, k));
        const std::vector<u8> rows = test::random_rows(random, type, n_rows, k);
        std::vector<u8> tile(16 * bytes + 64, 0xa5);
        gpu_repack_rows(
            {.type = type, .rows = rows.data(), .n_rows = n_rows, .k = k, .tile = tile.data()});
        for (u64 i = 16 * bytes; i < tile.size(); ++i) REQUIRE(tile[i] == 0xa5);
        for (u64 r = 0; r < n_rows; ++r) {
          if (type == TensorType::f16) {
            REQUIRE(std::memcmp(&tile[r * bytes], &rows[r * bytes], bytes) == 0);
            continue;
          }
          for (u64 s = 0; s < k / 32; ++s) {
            const u64 strips = traits.block_elems / 32;
            const u8* block = &rows[r * bytes + s / strips * traits.block_bytes];
            check_strip(read_strip(type, tile.data(), k, r, s),
                        strip_from_file(type, block, static_cast<u32>(s % strips)));
          }
        }
        for (u64 r = n_rows; r < 16 && type != TensorType::f16; ++r) {
          REQUIRE(bits_of(read_strip(type, tile.data(), k, r, 0).d) == 0);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tarn::kernels::gpu_tile_test
