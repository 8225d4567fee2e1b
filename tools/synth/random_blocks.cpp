#include "tools/synth/random_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <vector>

#include "kernels/quant/unpack.h"
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
constexpr SubScales subs_up_to(i32 most) {
  return most == 15 ? SubScales{9, 6} : most == 31 ? SubScales{17, 15} : SubScales{34, 28};
}
template <class Type>
constexpr SubScales kSubs = subs_up_to(Type::kScaleMost);

// Mean square of offset + {0 .. n-1}, all equally likely.
f64 code_mean_square(i32 n, f64 offset) {
  f64 sum = 0;
  for (i32 i = 0; i < n; ++i) sum += (i + offset) * (i + offset);
  return sum / n;
}

// Mean square of a type's weights, each code equally likely.
template <class Type>
f64 weight_mean_square() {
  if constexpr (kernels::HasTable<Type>) {
    f64 sum = 0;
    for (const i8 level : Type::kTable) sum += static_cast<f64>(level) * static_cast<f64>(level);
    return sum / static_cast<f64>(std::size(Type::kTable));
  } else {
    return code_mean_square(Type::kMost - Type::kLeast + 1, Type::kLeast);
  }
}

void put_u16(u8* out, u16 value) { std::memcpy(out, &value, sizeof value); }

template <class Type>
u8* scales_in(u8* block) {
  return block + Type::kHead[std::size(Type::kHead) - 1].at;
}

// Calls fill(block) for each.
template <class Type, class Fill>
void each_block(std::span<u8> out, const Fill& fill) {
  constexpr u64 kBytes = Type::kTraits.block_bytes;
  for (u64 at = 0; at < out.size(); at += kBytes) fill(out.data() + at);
}

template <class Type>
void fill_whole(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 unit = std::sqrt(code_mean_square(255, -127) * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, 0);
  each_block<Type>(out, [&](u8* block) {
    u8* codes = block + Type::kPlanes[0].at;
    for (u32 i = 0; i < Type::kTraits.block_elems; ++i) {
      if (codes[i] == 0x80) codes[i] = 0;  // -128 is no code of q8_0
    }
    put_u16(block + Type::kHead[0].at, scales.d[random.next() % kScaleSteps]);
  });
}

// Types with d alone. Codes reach one step further down than up, or have uneven levels; scales of
// either sign keep the mean at 0.
template <class Type>
void fill_signed(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 unit = std::sqrt(weight_mean_square<Type>() * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, 0);
  each_block<Type>(out, [&](u8* block) {
    const u64 bits = random.next();
    const auto sign = static_cast<u16>(bits >> 48 & 0x8000);
    put_u16(block + Type::kHead[0].at, static_cast<u16>(scales.d[bits % kScaleSteps] | sign));
  });
}

template <class Type>
void put_d_and_dmin(u64 step, const ScaleTable& scales, u8* block) {
  put_u16(block + Type::kHead[0].at, scales.d[step]);
  put_u16(block + Type::kHead[1].at, scales.d_min[step]);
}

// d and an offset, -d * (half of the code range).
template <class Type>
void fill_offset(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 middle = Type::kMost / 2.0;
  const f64 unit =
      std::sqrt(code_mean_square(Type::kMost + 1, -middle) * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, -middle);
  each_block<Type>(
      out, [&](u8* block) { put_d_and_dmin<Type>(random.next() % kScaleSteps, scales, block); });
}

// Powers of two, mixed so that their mean square is the wanted one.
template <class Type>
void fill_exponent(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 wanted = rms / std::sqrt(weight_mean_square<Type>());
  i32 exponent = 0;
  const f64 excess = 2 * std::frexp(wanted, &exponent);  // 1 .. 2
  const f64 upper_share = (excess * excess - 1) / 3;
  const u64 border = static_cast<u64>(upper_share * 0x1p32);
  const i32 lower = exponent - 1 + 128;  // levels are doubled: d is 2^(byte - 128)
  each_block<Type>(out, [&](u8* block) {
    const bool upper = random.next() >> 32 < border;
    block[Type::kHead[0].at] = static_cast<u8>(std::clamp(lower + (upper ? 1 : 0), 0, 254));
  });
}

// Sub-blocks with a scale and a minimum. value = d * scale * code - d_min * minimum; d_min = d *
// (half of the code range) puts the mean at 0.
template <class Type>
void fill_scales_minima(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 middle = Type::kMost / 2.0;
  const f64 codes = code_mean_square(Type::kMost + 1, -middle);
  // The minima's offsets, -1, 0, 0, 1, have mean square 0.5 and add (middle * offset)^2.
  const f64 unit = std::sqrt((codes * kSubs<Type>.mean_square() + middle * middle * 0.5) *
                             ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, middle);
  each_block<Type>(out, [&](u8* block) {
    put_d_and_dmin<Type>(random.next() % kScaleSteps, scales, block);
    std::array<u32, Type::kScales> scale{}, minimum{};
    u64 bits = 0;
    for (u32 j = 0; j < Type::kScales; ++j, bits >>= 8) {
      if (j % 8 == 0) bits = random.next();
      scale[j] = kSubs<Type>.pick(bits);
      minimum[j] = scale[j] + static_cast<u32>(bits >> 6 & 1) - static_cast<u32>(bits >> 7 & 1);
    }
    Type::write_scales(scale.data(), minimum.data(), scales_in<Type>(block));
  });
}

// Sub-blocks with a scale of either sign; where it has a byte of its own, the block's random bytes
// say which.
template <class Type>
void fill_scales(f32 rms, FastRandom& random, std::span<u8> out) {
  const f64 unit =
      std::sqrt(weight_mean_square<Type>() * kSubs<Type>.mean_square() * ScaleTable::mean_square());
  const ScaleTable scales(rms / unit, 0);
  const auto scale_of = [](u64 bits) {
    const auto magnitude = static_cast<i32>(kSubs<Type>.pick(bits));
    return (bits & 64) != 0 ? magnitude : -magnitude;
  };
  each_block<Type>(out, [&](u8* block) {
    u8* bytes = scales_in<Type>(block);
    if constexpr (kernels::ReadsScales<Type>) {
      std::array<i32, Type::kScales> scale{};
      u64 bits = 0;
      for (u32 j = 0; j < Type::kScales; ++j, bits >>= 8) {
        if (j % 8 == 0) bits = random.next();
        scale[j] = scale_of(bits);
      }
      Type::write_scales(scale.data(), scale.data(), bytes);
    } else {
      for (u32 j = 0; j < Type::kScales; ++j) bytes[j] = static_cast<u8>(scale_of(bytes[j]));
    }
    put_u16(block + Type::kHead[0].at, scales.d[random.next() % kScaleSteps]);
  });
}

// Writes scales over a quantised type's random bytes.
template <class Type>
void fill_blocks(f32 rms, FastRandom& random, std::span<u8> out) {
  if constexpr (Type::kPlanes[0].bits == 8) {
    fill_whole<Type>(rms, random, out);
  } else if constexpr (Type::kHead[0].n_bytes == 1) {
    fill_exponent<Type>(rms, random, out);
  } else if constexpr (kernels::AddsMinimum<Type>) {
    fill_offset<Type>(rms, random, out);
  } else if constexpr (kernels::HasMinimum<Type>) {
    fill_scales_minima<Type>(rms, random, out);
  } else if constexpr (kernels::HasScales<Type>) {
    fill_scales<Type>(rms, random, out);
  } else {
    fill_signed<Type>(rms, random, out);
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
  const bool is_quantized = kernels::QuantTypes::visit(type, [&]<class Type>(Type) {
    random.fill(out);
    fill_blocks<Type>(rms, random, out);
  });
  if (is_quantized) return;
  if (type == TensorType::f32) {
    fill_floats<f32>(rms, random, out, [](f32 value) { return value; });
  } else {
    fill_floats<u16>(rms, random, out, type == TensorType::f16 ? f16_bits : bf16_bits);
  }
}

}  // namespace tarn::synth
