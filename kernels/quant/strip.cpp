#include "kernels/quant/strip.h"

#include <bit>
#include <cstring>

#include "kernels/common/half.h"
#include "kernels/quant/unpack.h"
#include "platform/base/assert.h"

namespace tarn::kernels {
namespace {

template <class Type>
constexpr u32 kHeadBytes = kTileOf<Type>.strips / kTileRows;

// unpack.h's class for one byte of one row.
struct OneByte {
  using Bytes = u32;
  using Row = OneByte;
  static constexpr u32 kRows = 1, kBytes = 1;
  static Bytes load(const u8* at) { return *at; }
  static void store(u8* at, Bytes value) { *at = static_cast<u8>(value); }
  static Bytes set(u8 value) { return value; }
  static Bytes both(Bytes a, Bytes b) { return a & b; }
  static Bytes merge(Bytes a, Bytes b, Bytes mask) { return a | (b & mask); }
  static Bytes minus(Bytes a, Bytes b) { return a - b; }
  template <i32 kRight>
  static Bytes right(Bytes a) {
    return kRight < 0 ? a << -kRight : a >> kRight;
  }
};

f32 f16_at(const u8* bytes) {
  u16 half;
  std::memcpy(&half, bytes, sizeof half);
  return f16_to_f32(half);
}

// 2^(e - 128), which is subnormal for e = 0 and 1.
f32 e8m0_at(const u8* byte) {
  const u32 e = *byte;
  return std::bit_cast<f32>(e < 2 ? (e + 1) << 21 : (e - 1) << 23);
}

u32 bits_in_file(const Plane& plane, const u8* block, u32 s, u32 e) {
  const BitOffset bit = bit_in_file(plane, s, e);
  return u32{block[plane.at + bit.byte]} >> bit.shift & ((1u << plane.bits) - 1);
}

// Where a plane's bits of element e of row `row` lie behind the plane's first byte of a strip.
BitOffset bit_in_tile(const Plane& plane, u32 row, u32 e) {
  const u32 group = e / 4, in_row = row * 4 + e % 4;
  switch (plane.bits) {
    case 8:
      return {group * 64 + in_row, 0};
    case 4:
      return {group % 4 * 64 + in_row, group / 4 * 4};
    case 2:
      return {group / 4 * 64 + in_row, group % 4 * 2};
    default:
      return {in_row, group};
  }
}

// A row's bytes of the head, in kHead's order, become the strip's scales.
template <class Type>
void read_head(const u8* head, u32 strip_idx, Strip& strip) {
  strip.scale[0] = strip.scale[1] = 1;
  strip.min[0] = strip.min[1] = 0;
  strip.d = Type::kHead[0].n_bytes == 1 ? e8m0_at(head) : f16_at(head);
  if constexpr (HasMinimum<Type>) {
    strip.dmin = f16_at(head + Type::kHead[0].n_bytes);
    if constexpr (AddsMinimum<Type>) strip.dmin = -strip.dmin;
    strip.min[0] = strip.min[1] = 1;
  }
  if constexpr (HasScales<Type>) {
    constexpr u32 kEach = Type::kScales / kStripsOf<Type>;  // one or two scales a strip
    constexpr u32 kAt = kTileOf<Type>.scales / kTileRows;
    const u8* scales = head + kAt;
    u8 scales_read[Type::kScales], minima_read[Type::kScales];
    if constexpr (ReadsScales<Type>) {
      Type::template read_scales<OneByte>(head + kAt, scales_read, minima_read);
      scales = scales_read;
    }
    for (u32 i = 0; i < 2; ++i) {
      const u32 at = strip_idx * kEach + i * (kEach - 1);
      strip.scale[i] = HasMinimum<Type> ? i32{scales[at]} : i32{static_cast<i8>(scales[at])};
      if constexpr (HasMinimum<Type>) strip.min[i] = minima_read[at];
    }
  }
}

// Stored codes become weights above the least one.
template <class Type>
void finish_codes(Strip& strip) {
  strip.zero = -Type::kLeast;
  for (u8& code : strip.codes) {
    if constexpr (Type::kPlanes[0].bits == 8) code ^= 0x80u;
    if constexpr (HasTable<Type>) code = static_cast<u8>(Type::kTable[code] - Type::kLeast);
  }
}

template <class Type>
Strip from_file(const u8* block, u32 strip_idx) {
  Strip strip{};
  u8 head[kHeadBytes<Type>];
  u32 n_head = 0;
  for (const HeadPart& part : Type::kHead) {
    std::memcpy(head + n_head, block + part.at, part.n_bytes);
    n_head += part.n_bytes;
  }
  read_head<Type>(head, strip_idx, strip);
  for (const Plane& plane : Type::kPlanes) {
    for (u32 e = 0; e < kStripElems; ++e) {
      const u32 bits = bits_in_file(plane, block, strip_idx, e);
      strip.codes[e] |= static_cast<u8>(bits << plane.shift);
    }
  }
  finish_codes<Type>(strip);
  return strip;
}

template <class Type>
Strip from_tile(const u8* block, u32 row, u32 strip_idx) {
  Strip strip{};
  u8 head[kHeadBytes<Type>];
  u32 n_head = 0;
  for (const HeadPart& part : Type::kHead) {
    for (u32 i = 0; i < part.n_bytes; i += part.unit, n_head += part.unit) {
      std::memcpy(head + n_head, block + n_head * kTileRows + row * part.unit, part.unit);
    }
  }
  read_head<Type>(head, strip_idx, strip);
  const u8* at = block + kTileOf<Type>.strips + u64{strip_idx} * kTileOf<Type>.strip_bytes;
  for (const Plane& plane : Type::kPlanes) {
    for (u32 e = 0; e < kStripElems; ++e) {
      const BitOffset bit = bit_in_tile(plane, row, e);
      const u32 bits = u32{at[bit.byte]} >> bit.shift & ((1u << plane.bits) - 1);
      strip.codes[e] |= static_cast<u8>(bits << plane.shift);
    }
    at += 64 * plane.bits;
  }
  finish_codes<Type>(strip);
  return strip;
}

template <class Type>
void to_tile(const u8* source, u8* block, u32 row) {
  u8* at = block;
  for (const HeadPart& part : Type::kHead) {
    for (u32 i = 0; i < part.n_bytes; i += part.unit, at += part.unit * kTileRows) {
      std::memcpy(at + row * part.unit, source + part.at + i, part.unit);
    }
  }
  for (u32 s = 0; s < kStripsOf<Type>; ++s) {
    for (const Plane& plane : Type::kPlanes) {
      for (u32 e = 0; e < kStripElems; ++e) {
        const BitOffset bit = bit_in_tile(plane, row, e);
        at[bit.byte] |= static_cast<u8>(bits_in_file(plane, source, s, e) << bit.shift);
      }
      at += 64 * plane.bits;
    }
  }
}

}  // namespace

BitOffset bit_in_file(const Plane& plane, u32 s, u32 e) {
  switch (plane.bits) {
    case 8:
      return {s * kStripElems + e, 0};
    case 4:
      if (plane.strips == 1) return {s * 16 + e % 16, e / 16 * 4};
      if (plane.strips == 2) return {s / 2 * 32 + e, s % 2 * 4};
      return {s / 4 * 64 + s % 2 * 32 + e, s % 4 / 2 * 4};
    case 2:
      return {s / 4 * 32 + e, s % 4 * 2};
    default:
      if (plane.strips == 1) return {s * 4 + e / 8, e % 8};
      return {e, s};
  }
}

Strip strip_from_file(TensorType type, const u8* block, u32 strip_idx) {
  Strip strip{};
  QuantTypes::visit(type, [&]<class Type>(Type) { strip = from_file<Type>(block, strip_idx); });
  return strip;
}

Strip strip_from_tile(TensorType type, const u8* block, u32 row, u32 strip_idx) {
  Strip strip{};
  QuantTypes::visit(type,
                    [&]<class Type>(Type) { strip = from_tile<Type>(block, row, strip_idx); });
  return strip;
}

void block_to_tile(TensorType type, const u8* source, u8* block, u32 row) {
  QuantTypes::visit(type, [&]<class Type>(Type) { to_tile<Type>(source, block, row); });
}

}  // namespace tarn::kernels
