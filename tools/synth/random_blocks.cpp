#include "tools/synth/random_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tools/support/gguf_write.h"

namespace tarn::synth {
namespace {

using kernels::TensorType;
using tools::bf16_bits;
using tools::f16_bits;

u64 splitmix(u64& state) {
  state += 0x9E3779B97F4A7C15ull;
  u64 z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

constexpr u32 kScaleSteps = 64;
constexpr f64 kScaleLow = 0.75, kScaleHigh = 1.25;  // of the mean block scale

// Block scales (f16 bits) around a mean, each with its companion `ratio` times as large.
struct ScaleTable {
  std::array<u16, kScaleSteps> d{};
  std::array<u16, kScaleSteps> d_min{};

  ScaleTable(f64 mean, f64 ratio) {
    for (u32 i = 0; i < kScaleSteps; ++i) {
      const f64 value = mean * scale_factor(i);
      d[i] = f16_bits(static_cast<f32>(value));
      d_min[i] = f16_bits(static_cast<f32>(value * ratio));
    }
  }
  static f64 scale_factor(u32 i) {
    return kScaleLow + (kScaleHigh - kScaleLow) * (i + 0.5) / kScaleSteps;
  }
  static f64 mean_square() {
    f64 sum = 0;
    for (u32 i = 0; i < kScaleSteps; ++i) sum += scale_factor(i) * scale_factor(i);
    return sum / kScaleSteps;
  }
};

// Sub-block scales of the K types: kSubLow .. kSubLow + 27, so that six bits hold them and the
// minima, which differ from them by -1..1.
constexpr u32 kSubLow = 34, kSubSteps = 28;

f64 sub_scale_mean_square() {
  f64 sum = 0;
  for (u32 i = 0; i < kSubSteps; ++i) sum += (kSubLow + i) * (kSubLow + i);
  return sum / kSubSteps;
}

// Mean square of offset + {0 .. n-1}, all equally likely.
f64 code_mean_square(i32 n, f64 offset) {
  f64 sum = 0;
  for (i32 i = 0; i < n; ++i) sum += (i + offset) * (i + offset);
  return sum / n;
}

void put_u16(u8* out, u16 value) { std::memcpy(out, &value, sizeof value); }

void fill_q8_0(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 unit = std::sqrt(code_mean_square(255, -127) * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, 0);
  for (u64 at = 0; at < out.size(); at += 34) {
    u8* block = out.data() + at;
    for (u32 i = 2; i < 34; ++i) {
      if (block[i] == 0x80) block[i] = 0;  // -128 is no code of q8_0
    }
    put_u16(block, scales.d[random.next() % kScaleSteps]);
  }
}

// q4_0 and q5_0. Codes reach one step further down than up; scales of either sign keep the mean at
// 0. n_codes is even.
void fill_centred(i32 n_codes, u64 block_bytes, f32 rms, FastRandom& random, std::span<u8> out) {
  const i32 least = -(n_codes / 2);
  const f64 unit = std::sqrt(code_mean_square(n_codes, least) * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, 0);
  for (u64 at = 0; at < out.size(); at += block_bytes) {
    const u64 bits = random.next();
    const auto sign = static_cast<u16>(bits >> 48 & 0x8000);
    put_u16(out.data() + at, static_cast<u16>(scales.d[bits % kScaleSteps] | sign));
  }
}

// The 12 bytes that hold eight 6-bit scales and eight 6-bit minima (q4_k, q5_k).
void put_sub_scales(FastRandom& random, u8* out) {
  u64 bits = random.next();
  std::array<u32, 8> scale{};
  std::array<u32, 8> minimum{};
  for (u32 j = 0; j < 8; ++j, bits >>= 8) {
    scale[j] = kSubLow + (static_cast<u32>(bits & 63) * kSubSteps >> 6);
    minimum[j] = scale[j] + static_cast<u32>(bits >> 6 & 1) - static_cast<u32>(bits >> 7 & 1);
  }
  for (u32 j = 0; j < 4; ++j) {
    out[j] = static_cast<u8>(scale[j] | scale[j + 4] >> 4 << 6);
    out[j + 4] = static_cast<u8>(minimum[j] | minimum[j + 4] >> 4 << 6);
    out[j + 8] = static_cast<u8>((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
  }
}

// q4_k and q5_k: value = d * scale * code - d_min * minimum; d_min = d * (half of the code range)
// puts the mean at 0.
void fill_k(i32 n_codes, u64 block_bytes, f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 middle = (n_codes - 1) / 2.0;
  // The minima's offsets, -1, 0, 0, 1, have mean square 0.5 and add (middle * offset)^2.
  const f64 unit = std::sqrt(
      (code_mean_square(n_codes, -middle) * sub_scale_mean_square() + middle * middle * 0.5) *
      ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, middle);
  for (u64 at = 0; at < out.size(); at += block_bytes) {
    u8* block = out.data() + at;
    const u64 step = random.next() % kScaleSteps;
    put_u16(block, scales.d[step]);
    put_u16(block + 2, scales.d_min[step]);
    put_sub_scales(random, block + 4);
  }
}

void fill_q6_k(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 unit =
      std::sqrt(code_mean_square(64, -32) * sub_scale_mean_square() * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, 0);
  for (u64 at = 0; at < out.size(); at += 210) {
    u8* block = out.data() + at;
    for (u32 i = 192; i < 208; ++i) {  // i8 scales of either sign
      const u32 magnitude = kSubLow + ((block[i] & 63) * kSubSteps >> 6);
      block[i] = static_cast<u8>((block[i] & 64) != 0 ? magnitude : 0u - magnitude);
    }
    put_u16(block + 208, scales.d[random.next() % kScaleSteps]);
  }
}

template <class T, class Convert>
void fill_floats(f32 rms, FastRandom& random, std::span<u8> out, Convert convert) {
  const auto quantiles = normal_table();
  std::vector<T> table;
  for (const f32 quantile : quantiles) table.push_back(convert(quantile * rms));
  const u64 n = out.size() / sizeof(T);
  for (u64 i = 0; i < n; i += 4) {
    const u64 bits = random.next();
    const T four[] = {table[bits & 4095], table[bits >> 16 & 4095], table[bits >> 32 & 4095],
                      table[bits >> 48 & 4095]};
    std::memcpy(out.data() + i * sizeof(T), four, std::min<u64>(4, n - i) * sizeof(T));
  }
}

// Quantiles by bisection of the distribution function, which needs no table.
std::vector<f32> make_normal_table() {
  std::vector<f64> values(4096);
  f64 sum_squares = 0;
  for (u32 i = 0; i < values.size(); ++i) {
    const f64 target = (i + 0.5) / 4096.0;
    f64 low = -6, high = 6;
    for (u32 step = 0; step < 40; ++step) {
      const f64 middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < target ? low : high) = middle;
    }
    values[i] = (low + high) / 2;
    sum_squares += values[i] * values[i];
  }
  std::vector<f32> out;
  out.reserve(values.size());
  for (const f64 value : values)
    out.push_back(static_cast<f32>(value / std::sqrt(sum_squares / 4096)));
  return out;
}

}  // namespace

FastRandom::FastRandom(u64 seed, u64 label_a, u64 label_b) {
  u64 state = seed;
  state = splitmix(state) ^ label_a;
  state = splitmix(state) ^ label_b;
  for (u64& word : state_) word = splitmix(state);
}

u64 FastRandom::next() {
  u64* s = state_;
  const u64 result = std::rotl(s[0] + s[3], 23) + s[0];
  const u64 shifted = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= shifted;
  s[3] = std::rotl(s[3], 45);
  return result;
}

void FastRandom::fill(std::span<u8> out) {
  for (u64 at = 0; at < out.size(); at += 8) {
    const u64 bits = next();
    std::memcpy(out.data() + at, &bits, std::min<u64>(8, out.size() - at));
  }
}

std::span<const f32> normal_table() {
  static const std::vector<f32> table = make_normal_table();
  return table;
}

void random_blocks(TensorType type, f32 rms, FastRandom& random, std::span<u8> out) {
  switch (type) {
    case TensorType::f32:
      return fill_floats<f32>(rms, random, out, [](f32 value) { return value; });
    case TensorType::f16:
      return fill_floats<u16>(rms, random, out, f16_bits);
    case TensorType::bf16:
      return fill_floats<u16>(rms, random, out, bf16_bits);
    default:
      break;
  }
  random.fill(out);
  switch (type) {
    case TensorType::q8_0:
      return fill_q8_0(rms, random, out);
    case TensorType::q4_0:
      return fill_centred(16, 18, rms, random, out);
    case TensorType::q5_0:
      return fill_centred(32, 22, rms, random, out);
    case TensorType::q4_k:
      return fill_k(16, 144, rms, random, out);
    case TensorType::q5_k:
      return fill_k(32, 176, rms, random, out);
    case TensorType::q6_k:
      return fill_q6_k(rms, random, out);
    default:
      throw std::runtime_error("no random weights of this type");
  }
}

}  // namespace tarn::synth
