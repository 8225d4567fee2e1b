// kernels/pq/pq_cluster_generic.cpp: the portable bodies, and the ones to read first.
#include <bit>
#include <cstring>

#include "kernels/common/half.h"
#include "kernels/common/scalar.h"
#include "kernels/pq/pq_cluster.h"

namespace tarn::kernels {
namespace {

constexpr f32 kInf = __builtin_inff();
constexpr f32 kKeyMax = 65536.0f;
constexpr f64 kUnit = 0x1p-24;
// A sum with it has the unit 1, so the addition rounds to a whole number, nearest even.
constexpr f64 kRound = 0x1.8p52;

i64 to_fixed(f32 x) {
  const f32 above = x > -kKeyMax ? x : -kKeyMax;
  const f32 clamped = above < kKeyMax ? above : kKeyMax;
  const f64 rounded = f64{clamped} * (1.0 / kUnit) + kRound;
  return std::bit_cast<i64>(rounded) - std::bit_cast<i64>(kRound);
}

}  // namespace

void pq_load_generic(const PqLoadArgs& args) {
  constexpr u32 kRowBlock = 32;
  for (u32 r = 0; r < args.n_rows; ++r) {
    const u8* row = args.rows + r * args.stride_bytes;
    f32* x = args.x + u64{r} * args.dims;
    u16 half = 0;
    for (u32 i = 0; i < args.dims; ++i) {
      if (args.type == TensorType::f16) {
        std::memcpy(&half, row + u64{i} * 2, 2);
        x[i] = f16_to_f32(half);
        continue;
      }
      const bool is_q8 = args.type == TensorType::q8_0;
      const u8* block = row + u64{i / kRowBlock} * (2 + (is_q8 ? kRowBlock : kRowBlock / 2));
      std::memcpy(&half, block, 2);
      const i32 q = is_q8 ? static_cast<i8>(block[2 + i % kRowBlock])
                          : (block[2 + i % 16] >> (i % kRowBlock / 16 * 4) & 15) - 8;
      x[i] = f16_to_f32(half) * static_cast<f32>(q);
    }
  }
}

void pq_assign_generic(const PqAssignArgs& args) {
  for (u32 r = 0; r < args.n_rows; ++r) {
    const f32* x = args.x + r * args.x_stride;
    f32 best = -kInf;
    u32 code = 0;
    for (u32 c = 0; c < args.n_padded; ++c) {
      f32 dot = 0.0f;
      for (u32 i = 0; i < args.dims; ++i)
        dot = fma_f32(x[i], args.centroids[u64{i} * args.n_padded + c], dot);
      const f32 value = dot - args.half_norms[c];
      if (value > best) {
        best = value;
        code = c;
      }
    }
    args.codes[r] = static_cast<u8>(code);
  }
}

void pq_accumulate_generic(const PqAccumulateArgs& args) {
  for (u32 r = 0; r < args.n_rows; ++r) {
    const f32* x = args.x + r * args.x_stride;
    i64* sums = args.sums + u64{args.codes[r]} * args.dims;
    for (u32 i = 0; i < args.dims; ++i) sums[i] += to_fixed(x[i]);
    args.counts[args.codes[r]] += 1;
  }
}

f64 pq_update(const PqUpdateArgs& args) {
  const u32 n_padded = pq_padded(args.n_centroids);
  f64 shift = 0.0;
  for (u32 c = 0; c < args.n_centroids; ++c) {
    if (args.counts[c] == 0) continue;
    const f64 count = args.counts[c];
    for (u32 i = 0; i < args.dims; ++i) {
      f32& centroid = args.centroids[u64{i} * n_padded + c];
      const f64 sum = static_cast<f64>(args.sums[u64{c} * args.dims + i]);
      const f32 moved = static_cast<f32>(sum / count * kUnit);
      const f64 way = f64{moved} - f64{centroid};
      shift += way * way;
      centroid = moved;
    }
  }
  pq_half_norms(args.centroids, args.dims, args.n_centroids, args.half_norms);
  return shift;
}

void pq_half_norms(const f32* centroids, u32 dims, u32 n_centroids, f32* half_norms) {
  const u32 n_padded = pq_padded(n_centroids);
  for (u32 c = 0; c < n_padded; ++c) half_norms[c] = c < n_centroids ? 0.0f : kInf;
  for (u32 i = 0; i < dims; ++i) {
    const f32* row = centroids + u64{i} * n_padded;
    for (u32 c = 0; c < n_centroids; ++c) half_norms[c] += row[c] * row[c];
  }
  for (u32 c = 0; c < n_centroids; ++c) half_norms[c] *= 0.5f;
}

}  // namespace tarn::kernels
