// The bodies of pq_cluster.h's assignment and of pq_score.h's tables and weights for one ISA's F32x
// (kernels/common/f32x_<isa>.h). Included by the ISA files alone.
//
// Assignment and tables are the same product: a few vectors against all centroids. A lane is a
// centroid, so no sum crosses lanes. kVectors vectors share each register of centroids.
#pragma once

#include "kernels/common/exp_vector.h"
#include "kernels/pq/pq_cluster.h"
#include "kernels/pq/pq_score.h"

namespace tarn::kernels {
namespace {

template <class F>
struct PqVector {
  using V = typename F::V;
  static constexpr u32 kVectors = 4;
  static constexpr u32 kRegisters = F::kLanes == 16 ? 4 : 2;  // of centroids at a time
  static constexpr f32 kNone = -__builtin_inff();

  static void load_keys(const PqLoadArgs& args) {
    constexpr u32 kBlock = 32;
    for (u32 r = 0; r < args.n_rows; ++r) {
      const u8* row = args.rows + r * args.stride_bytes;
      f32* x = args.x + u64{r} * args.dims;
      u32 i = 0;
      if (args.type == TensorType::f16) {
        for (; i + F::kLanes <= args.dims; i += F::kLanes)
          F::store(x + i, F::load_f16(row + 2 * i));
        for (; i < args.dims; ++i) x[i] = F::f16_at(row + 2 * i);
        continue;
      }
      if (args.type == TensorType::q4_0) {
        for (; i < args.dims; i += F::kLanes) {
          const u8* block = row + i / kBlock * (2 + kBlock / 2);
          F::store(x + i, F::mul(F::set(F::f16_at(block)), F::load_i4(block + 2, i % kBlock)));
        }
        continue;
      }
      for (; i < args.dims; i += F::kLanes) {
        const u8* block = row + i / kBlock * (2 + kBlock);
        const V q = F::load_i8(block + 2 + i % kBlock);
        F::store(x + i, F::mul(F::set(F::f16_at(block)), q));
      }
    }
  }

  // `equal(value, f32)` gives a bit for each lane that is equal.
  template <class Equal>
  static void assign(const PqAssignArgs& args, Equal equal) {
    const auto some = [&](auto n, u32 r) {
      f32 best[n.value];
      u32 codes[n.value];
      for (u32 v = 0; v < n.value; ++v) best[v] = kNone, codes[v] = 0;
      const f32* x = args.x + r * args.x_stride;
      for_all_dots<n.value>(x, args.x_stride, args.centroids, args.dims, args.n_padded,
                            [&](u32 v, u32 c, auto n_registers, V* sums) {
                              V largest = F::set(kNone);
                              for (u32 j = 0; j < n_registers.value; ++j) {
                                sums[j] =
                                    F::sub(sums[j], F::load(args.half_norms + c + j * F::kLanes));
                                largest = F::max(sums[j], largest);  // ignores a NaN
                              }
                              const f32 value = F::max_lane(largest);
                              if (!(value > best[v])) return;
                              best[v] = value;
                              u64 lanes = 0;
                              for (u32 j = 0; j < n_registers.value; ++j) {
                                lanes |= u64{equal(sums[j], value)} << (j * F::kLanes);
                              }
                              codes[v] = c + static_cast<u32>(__builtin_ctzll(lanes));
                            });
      for (u32 v = 0; v < n.value; ++v) args.codes[r + v] = static_cast<u8>(codes[v]);
    };
    u32 r = 0;
    for (; r + kVectors <= args.n_rows; r += kVectors) some(Constant<kVectors>{}, r);
    for (; r < args.n_rows; ++r) some(Constant<1>{}, r);
  }

  static void lut(const PqLutArgs& args) {
    for (u32 m = 0; m < args.n_subspaces; ++m) {
      const f32* centroids = args.codebook + u64{m} * args.dims * args.n_padded;
      const auto some = [&](auto n, u32 h) {
        for_all_dots<n.value>(
            args.q + h * args.q_stride + u64{m} * args.dims, args.q_stride, centroids, args.dims,
            args.n_padded, [&](u32 v, u32 c, auto n_registers, V* sums) {
              f32* out = args.lut + (u64{h + v} * args.n_subspaces + m) * args.n_padded + c;
              for (u32 j = 0; j < n_registers.value; ++j) F::store(out + j * F::kLanes, sums[j]);
            });
      };
      u32 h = 0;
      for (; h + kVectors <= args.n_heads; h += kVectors) some(Constant<kVectors>{}, h);
      for (; h < args.n_heads; ++h) some(Constant<1>{}, h);
    }
  }

  static void weigh(const PqWeighArgs& args) {
    for (u32 h = 0; h < args.n_heads; ++h) {
      f32* p = args.scores + h * args.scores_stride;
      const V factor = F::set(1.0f / exp_and_sum(p, args.n_tokens, max_of(p, args.n_tokens)));
      for (u32 t = 0; t < args.n_tokens; t += F::kLanes) {
        const u32 n = lanes_left(args.n_tokens, t);
        const V weight = F::mul(load(p + t, n), factor);
        const V sum = h == 0 ? weight : F::add(load(args.weights + t, n), weight);
        store(args.weights + t, sum, n);
      }
    }
  }

 private:
  template <u32 kValue>
  struct Constant {
    static constexpr u32 value = kValue;
  };

  static V load(const f32* source, u32 n) {
    return n == F::kLanes ? F::load(source) : F::load_some(source, n);
  }
  static void store(f32* target, V v, u32 n) {
    n == F::kLanes ? F::store(target, v) : F::store_some(target, v, n);
  }
  static u32 lanes_left(u32 n, u32 t) { return n - t < F::kLanes ? n - t : F::kLanes; }

  // Calls take(v, c, number of registers, dots of vector v with centroids c...), c ascending.
  template <u32 n_vectors, class Take>
  static void for_all_dots(const f32* x, u64 x_stride, const f32* centroids, u32 dims, u32 n_padded,
                           Take take) {
    if (n_padded % (kRegisters * F::kLanes) == 0) {
      dots<n_vectors, kRegisters>(x, x_stride, centroids, dims, n_padded, take);
    } else {  // 16 or 32 columns of AVX-512
      dots<n_vectors, 1>(x, x_stride, centroids, dims, n_padded, take);
    }
  }

  template <u32 n_vectors, u32 n_registers, class Take>
  static void dots(const f32* x, u64 x_stride, const f32* centroids, u32 dims, u32 n_padded,
                   Take take) {
    const f32* vectors[n_vectors];
    for (u32 v = 0; v < n_vectors; ++v) vectors[v] = x + v * x_stride;
    for (u32 c = 0; c < n_padded; c += n_registers * F::kLanes) {
      V sums[n_vectors][n_registers];
      for (auto& of_vector : sums) {
        for (V& sum : of_vector) sum = F::zero();
      }
      const f32* row = centroids + c;
      for (u32 i = 0; i < dims; ++i, row += n_padded) {
        V columns[n_registers];
        for (u32 j = 0; j < n_registers; ++j) columns[j] = F::load(row + j * F::kLanes);
        for (u32 v = 0; v < n_vectors; ++v) {
          const V element = F::set(vectors[v][i]);
          for (u32 j = 0; j < n_registers; ++j) {
            sums[v][j] = F::fma(element, columns[j], sums[v][j]);
          }
        }
      }
      for (u32 v = 0; v < n_vectors; ++v) take(v, c, Constant<n_registers>{}, sums[v]);
    }
  }

  static f32 max_of(const f32* scores, u32 n) {
    V largest = F::set(kNone);
    for (u32 t = 0; t < n; t += F::kLanes) {
      const u32 n_lanes = lanes_left(n, t);
      const V some = load(scores + t, n_lanes);
      largest = F::max(n_lanes < F::kLanes ? F::keep_first(some, n_lanes, kNone) : some, largest);
    }
    return F::max_lane(largest);
  }

  static f32 exp_and_sum(f32* p, u32 n, f32 max) {
    constexpr u32 kParts = 16 / F::kLanes;
    V lanes[kParts];
    for (V& part : lanes) part = F::zero();
    for (u32 t = 0; t < n; t += 16) {
      for (u32 j = 0; j < kParts; ++j) {
        const u32 at = t + j * F::kLanes;
        if (at >= n) break;
        const u32 n_lanes = lanes_left(n, at);
        const V weight = exp_vector<F>(F::sub(load(p + at, n_lanes), F::set(max)));
        store(p + at, weight, n_lanes);
        const bool whole = n_lanes == F::kLanes;
        lanes[j] = F::add(lanes[j], whole ? weight : F::keep_first(weight, n_lanes, 0.0f));
      }
    }
    return F::sum16(lanes);
  }
};

}  // namespace
}  // namespace tarn::kernels
