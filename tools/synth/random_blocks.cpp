#include "tools/synth/random_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "tools/quantize/blocks.h"
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

// Scales of sub-blocks: whole numbers low .. low + steps - 1, all equally likely.
struct SubScales {
  u32 low, steps;

  // One of them for each of 64 values.
  u32 pick(u64 bits) const { return low + (static_cast<u32>(bits & 63) * steps >> 6); }
  f64 mean_square() const {
    f64 sum = 0;
    for (u32 i = 0; i < steps; ++i) sum += (low + i) * (low + i);
    return sum / steps;
  }
};
// They fill the bits that hold them, minima that differ from them by -1..1 included.
constexpr SubScales kSubs6{34, 28};        // q4_k, q5_k, q6_k
constexpr SubScales kSubs4{9, 6};          // q2_k
constexpr SubScales kSubsSigned6{17, 15};  // q3_k, iq4_xs

// Mean square of offset + {0 .. n-1}, all equally likely.
f64 code_mean_square(i32 n, f64 offset) {
  f64 sum = 0;
  for (i32 i = 0; i < n; ++i) sum += (i + offset) * (i + offset);
  return sum / n;
}

f64 level_mean_square(TensorType type) {
  f64 sum = 0;
  const auto levels = tools::block_form(type).levels;
  for (const i8 level : levels) sum += static_cast<f64>(level) * static_cast<f64>(level);
  return sum / static_cast<f64>(levels.size());
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

// Types with d alone. Codes reach one step further down than up, or have uneven levels; scales of
// either sign keep the mean at 0.
void fill_signed(f64 codes_mean_square, u64 block_bytes, f32 rms, FastRandom& random,
                 std::span<u8> out) {
  const ScaleTable scales(rms / std::sqrt(codes_mean_square * ScaleTable::mean_square()), 0);
  for (u64 at = 0; at < out.size(); at += block_bytes) {
    const u64 bits = random.next();
    const auto sign = static_cast<u16>(bits >> 48 & 0x8000);
    put_u16(out.data() + at, static_cast<u16>(scales.d[bits % kScaleSteps] | sign));
  }
}

void fill_q4_0(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_signed(code_mean_square(16, -8), 18, rms, random, out);
}

void fill_q5_0(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_signed(code_mean_square(32, -16), 22, rms, random, out);
}

void fill_iq4_nl(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_signed(level_mean_square(TensorType::iq4_nl), 18, rms, random, out);
}

// q4_1 and q5_1: the offset is -d * (half of the code range).
void fill_offset(i32 n_codes, u64 block_bytes, f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 middle = (n_codes - 1) / 2.0;
  const f64 unit = std::sqrt(code_mean_square(n_codes, -middle) * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, -middle);
  for (u64 at = 0; at < out.size(); at += block_bytes) {
    const u64 step = random.next() % kScaleSteps;
    put_u16(out.data() + at, scales.d[step]);
    put_u16(out.data() + at + 2, scales.d_min[step]);
  }
}

void fill_q4_1(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_offset(16, 20, rms, random, out);
}

void fill_q5_1(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_offset(32, 24, rms, random, out);
}

// Powers of two, mixed so that their mean square is the wanted one.
void fill_mxfp4(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 wanted = rms / std::sqrt(level_mean_square(TensorType::mxfp4));
  i32 exponent = 0;
  const f64 excess = 2 * std::frexp(wanted, &exponent);  // 1 .. 2
  const f64 upper_share = (excess * excess - 1) / 3;
  const u64 border = static_cast<u64>(upper_share * 0x1p32);
  const i32 lower = exponent - 1 + 128;  // levels are doubled: d is 2^(byte - 128)
  for (u64 at = 0; at < out.size(); at += 17) {
    const bool upper = random.next() >> 32 < border;
    out[at] = static_cast<u8>(std::clamp(lower + (upper ? 1 : 0), 0, 254));
  }
}

// The 12 bytes that hold eight 6-bit scales and eight 6-bit minima (q4_k, q5_k).
void put_sub_scales(FastRandom& random, u8* out) {
  u64 bits = random.next();
  std::array<u32, 8> scale{};
  std::array<u32, 8> minimum{};
  for (u32 j = 0; j < 8; ++j, bits >>= 8) {
    scale[j] = kSubs6.pick(bits);
    minimum[j] = scale[j] + static_cast<u32>(bits >> 6 & 1) - static_cast<u32>(bits >> 7 & 1);
  }
  for (u32 j = 0; j < 4; ++j) {
    out[j] = static_cast<u8>(scale[j] | scale[j + 4] >> 4 << 6);
    out[j + 4] = static_cast<u8>(minimum[j] | minimum[j + 4] >> 4 << 6);
    out[j + 8] = static_cast<u8>((scale[j + 4] & 15) | (minimum[j + 4] & 15) << 4);
  }
}

// value = d * scale * code - d_min * minimum; d_min = d * (half of the code range) puts the mean at
// 0.
ScaleTable scales_with_minima(i32 n_codes, const SubScales& subs, f32 rms) {
  const f64 middle = (n_codes - 1) / 2.0;
  // The minima's offsets, -1, 0, 0, 1, have mean square 0.5 and add (middle * offset)^2.
  const f64 unit =
      std::sqrt((code_mean_square(n_codes, -middle) * subs.mean_square() + middle * middle * 0.5) *
                ScaleTable::mean_square());
  return ScaleTable(rms / unit, middle);
}

void fill_k(i32 n_codes, u64 block_bytes, f32 rms, FastRandom& random, std::span<u8> out) {
  const ScaleTable scales = scales_with_minima(n_codes, kSubs6, rms);
  for (u64 at = 0; at < out.size(); at += block_bytes) {
    u8* block = out.data() + at;
    const u64 step = random.next() % kScaleSteps;
    put_u16(block, scales.d[step]);
    put_u16(block + 2, scales.d_min[step]);
    put_sub_scales(random, block + 4);
  }
}

void fill_q4_k(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_k(16, 144, rms, random, out);
}

void fill_q5_k(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_k(32, 176, rms, random, out);
}

// A scale and a minimum share a byte.
void fill_q2_k(f32 rms, FastRandom& random, std::span<u8> out) {
  const ScaleTable scales = scales_with_minima(4, kSubs4, rms);
  for (u64 at = 0; at < out.size(); at += 84) {
    u8* block = out.data() + at;
    for (u32 j = 0; j < 16; ++j) {
      const u32 bits = block[j], scale = kSubs4.pick(bits);
      block[j] = static_cast<u8>(scale | (scale + (bits >> 6 & 1) - (bits >> 7)) << 4);
    }
    const u64 step = random.next() % kScaleSteps;
    put_u16(block + 80, scales.d[step]);
    put_u16(block + 82, scales.d_min[step]);
  }
}

void fill_q6_k(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 unit =
      std::sqrt(code_mean_square(64, -32) * kSubs6.mean_square() * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, 0);
  for (u64 at = 0; at < out.size(); at += 210) {
    u8* block = out.data() + at;
    for (u32 i = 192; i < 208; ++i) {  // i8 scales of either sign
      const u32 magnitude = kSubs6.pick(block[i]);
      block[i] = static_cast<u8>((block[i] & 64) != 0 ? magnitude : 0u - magnitude);
    }
    put_u16(block + 208, scales.d[random.next() % kScaleSteps]);
  }
}

// Scales of either sign, stored with 32 added: 0..63.
template <u32 kCount>
std::array<u32, kCount> stored_signed_scales(FastRandom& random) {
  std::array<u32, kCount> stored{};
  u64 bits = 0;
  for (u32 j = 0; j < kCount; ++j, bits >>= 8) {
    if (j % 8 == 0) bits = random.next();
    const u32 magnitude = kSubsSigned6.pick(bits);
    stored[j] = (bits & 64) != 0 ? 32 + magnitude : 32 - magnitude;
  }
  return stored;
}

ScaleTable scales_of_signed_subs(f64 codes_mean_square, f32 rms) {
  return ScaleTable(
      rms / std::sqrt(codes_mean_square * kSubsSigned6.mean_square() * ScaleTable::mean_square()),
      0);
}

void fill_q3_k(f32 rms, FastRandom& random, std::span<u8> out) {
  const ScaleTable scales = scales_of_signed_subs(code_mean_square(8, -4), rms);
  for (u64 at = 0; at < out.size(); at += 110) {
    u8* block = out.data() + at;
    const auto stored = stored_signed_scales<16>(random);
    for (u32 j = 0; j < 8; ++j) {
      block[96 + j] = static_cast<u8>((stored[j] & 15) | (stored[j + 8] & 15) << 4);
    }
    for (u32 j = 0; j < 4; ++j) {
      block[104 + j] = static_cast<u8>(stored[j] >> 4 | stored[j + 4] >> 4 << 2 |
                                       stored[j + 8] >> 4 << 4 | stored[j + 12] >> 4 << 6);
    }
    put_u16(block + 108, scales.d[random.next() % kScaleSteps]);
  }
}

void fill_iq4_xs(f32 rms, FastRandom& random, std::span<u8> out) {
  const ScaleTable scales = scales_of_signed_subs(level_mean_square(TensorType::iq4_xs), rms);
  for (u64 at = 0; at < out.size(); at += 136) {
    u8* block = out.data() + at;
    const auto stored = stored_signed_scales<8>(random);
    u32 upper = 0;
    for (u32 j = 0; j < 8; ++j) upper |= stored[j] >> 4 << (2 * j);
    put_u16(block + 2, static_cast<u16>(upper));
    for (u32 j = 0; j < 4; ++j) {
      block[4 + j] = static_cast<u8>((stored[2 * j] & 15) | (stored[2 * j + 1] & 15) << 4);
    }
    put_u16(block, scales.d[random.next() % kScaleSteps]);
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

void fill_f32(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_floats<f32>(rms, random, out, [](f32 value) { return value; });
}

void fill_f16(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_floats<u16>(rms, random, out, f16_bits);
}

void fill_bf16(f32 rms, FastRandom& random, std::span<u8> out) {
  fill_floats<u16>(rms, random, out, bf16_bits);
}

// A quantised type's filler finds random bytes, and writes the scales.
struct Filler {
  TensorType type;
  void (*fill)(f32 rms, FastRandom& random, std::span<u8> out);
};

constexpr Filler kFillers[] = {
    {TensorType::f32, fill_f32},       {TensorType::f16, fill_f16},
    {TensorType::bf16, fill_bf16},     {TensorType::q8_0, fill_q8_0},
    {TensorType::q4_0, fill_q4_0},     {TensorType::q5_0, fill_q5_0},
    {TensorType::q4_1, fill_q4_1},     {TensorType::q5_1, fill_q5_1},
    {TensorType::q2_k, fill_q2_k},     {TensorType::q3_k, fill_q3_k},
    {TensorType::q4_k, fill_q4_k},     {TensorType::q5_k, fill_q5_k},
    {TensorType::q6_k, fill_q6_k},     {TensorType::iq4_nl, fill_iq4_nl},
    {TensorType::iq4_xs, fill_iq4_xs}, {TensorType::mxfp4, fill_mxfp4},
};

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
  if (kernels::type_traits(type).block_elems > 1) random.fill(out);
  for (const Filler& filler : kFillers) {
    if (filler.type == type) return filler.fill(rms, random, out);
  }
  throw std::runtime_error("no random weights of this type");
}

}  // namespace tarn::synth
