// The terms in which a type's file in types/ describes it: how the parts of a block lie in the file
// and in a tile, what its codes mean, and which term its product has.
//
// A strip is 32 consecutive k of one row. Element e of a strip has the stored code
//
//   code = sum over planes of (plane's bits of e) << shift
//
// and the weight: code + kLeast, or kTable[code] where the type has a table of 16, or the code as
// an i8 where a plane has 8 bits. kLeast and kMost are the least and the largest weight. An index
// of a larger grid would stay in the tile, too, and be looked up by gather.
//
// In a tile the parts of the head come first, in kHead's order, each [n / unit][16 rows][unit];
// then strip after strip its planes, each of 64 * bits bytes:
//
//   8 bits   [8 groups g][16 rows][4 c]   element 4g + c
//   4 bits   [4 i][16 rows][4 c]          bits 0..3: element 4i + c, bits 4..7: 16 + 4i + c
//   2 bits   [2 v][16 rows][4 c]          bits 2g, 2g + 1: element 4(4v + g) + c
//   1 bit    [16 rows][4 c]               bit g: element 4g + c
//
// So a tile has 16 times a row's bytes, and a register of 4 codes of each row is a load and a
// shift.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

// Values are GGUF's type ids.
enum class TensorType : u32 {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

struct TypeTraits {
  TensorType type;
  const char* name;  // lower case, as on the command line
  u32 block_elems;   // along k
  u32 block_bytes;   // in the file
};

inline constexpr u32 kTileRows = 16;
inline constexpr u32 kStripElems = 32;
inline constexpr u32 kStripGroups = kStripElems / 4;  // vectors of 4 codes of each row

// A strip's part of a product; matmul.h has the formulas.
enum class Term : u8 {
  scaled,            // d, of each block or strip
  two_scales,        // d, and a scale for each 16 elements
  with_minimum,      // a scale and a minimum for each 32
  two_scales_minima  // a scale and a minimum for each 16
};

// Bytes of the head, in the file's block at `at`; `unit` bytes stay together in a tile. The first
// part of a type is d, the second its dmin where it has a minimum, the last the scales' bytes.
struct HeadPart {
  u32 at, n_bytes, unit;
};

// A plane of the codes' bits, in the file's block at `at`. `strips` strips share bytes there:
//
//   4 bits, 1   16 bytes a strip: byte i has element i in its low and 16 + i in its high nibble
//   4 bits, 2   32 bytes a pair: byte e has element e of the first strip in its low nibble
//   4 bits, 4   64 bytes a half block: 32 bytes of strips 0 and 2, then 32 of 1 and 3
//   2 bits, 4   32 bytes a half block: bits 2s, 2s + 1 of byte e are element e of its strip s
//   1 bit,  1   4 bytes a strip: bit e of them is element e
//   1 bit,  8   32 bytes a block: bit s of byte e is element e of strip s
struct Plane {
  u32 bits, strips, at, shift;
};

// Offsets in 16 rows' blocks in a tile, in bytes.
struct TileLayout {
  u32 dmin, scales, strips, strip_bytes, block_bytes;
};

template <class Type>
consteval TileLayout tile_layout() {
  TileLayout out{};
  u32 n_parts = 0;
  for (const HeadPart& part : Type::kHead) {
    if (n_parts == 1) out.dmin = out.strips;
    out.scales = out.strips;
    out.strips += part.n_bytes * kTileRows;
    ++n_parts;
  }
  for (const Plane& plane : Type::kPlanes) out.strip_bytes += 64 * plane.bits;
  out.block_bytes = out.strips + Type::kTraits.block_elems / kStripElems * out.strip_bytes;
  return out;
}

template <class Type>
inline constexpr TileLayout kTileOf = tile_layout<Type>();
template <class Type>
inline constexpr u32 kStripsOf = Type::kTraits.block_elems / kStripElems;

// The optional members of a type. kScales scales within a block, and as many minima where it has a
// minimum, are kScaleLeast .. kScaleMost. The head's last part holds them: as they are, or as
// read_scales() takes them apart (V: unpack.h) and write_scales() puts them together.
template <class Type>
concept HasTable = requires {
  Type::kTable;
};
template <class Type>
concept HasScales = requires {
  Type::kScales;
};
template <class Type>
concept AddsMinimum = requires {
  Type::kAddsMinimum;
};  // it is added, not subtracted
template <class Type>
concept HasMinimum = Type::kTerm == Term::with_minimum || Type::kTerm == Term::two_scales_minima;

}  // namespace tarn::kernels
