// kernels/topk/topk_generic.cpp: one value at a time.
#include <bit>

#include "kernels/topk/topk_radix.h"

namespace tarn::kernels {
namespace {

struct Scalar {
  static constexpr u32 kLanes = 1;
  // Turns all bits of a negative value but the sign; + 0 makes -0 the other zero.
  static i32 load(const f32* values, u32) {
    const i32 bits = std::bit_cast<i32>(values[0] + 0.0f);
    return bits ^ ((bits >> 31) & 0x7fffffff);
  }
  static void bins(i32 key, u32 shift, u32* out) {
    out[0] = (static_cast<u32>(key) ^ 0x80000000u) >> shift;
  }
  static u32 above(i32 keys, i32 key) { return keys > key ? 1 : 0; }
  static u32 equal(i32 keys, i32 key, u32 shift) { return keys >> shift == key >> shift ? 1 : 0; }
  static void put(u32, u32 place, u32* out) { out[0] = place; }
};

}  // namespace

u32 top_k_generic(const TopKArgs& args) { return TopKRadix<Scalar>(args).run(); }

}  // namespace tarn::kernels
