// Random operands for the GPU's products of quantised weights, and a launch of one. Buffers end
// where what may be read of them ends, so AddressSanitizer sees a step too far.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/kernels/gpu/gpus.h"
#include "tests/kernels/gpu/random_acts.h"
#include "tests/kernels/quant/random_rows.h"

namespace tarn::kernels::test {

struct ProductCase {
  const char* name;
  u32 k, n_rows, rows_max;
  std::vector<TensorType> types;
  std::vector<u32> n_out;
  bool with_bias;
  Store store;
};

inline constexpr f32 kCanary = -12345.0f;
inline constexpr u32 kGap = 3;  // elements between the rows of an output

struct ProductProblem {
  std::vector<f32> x;  // [rows_max, k]
  HostActs acts;
  std::vector<std::vector<u8>> rows;   // of each matrix, as in the file
  std::vector<std::vector<u8>> tiles;  // as on the GPU
  std::vector<std::vector<f32>> bias;
};

inline ProductProblem make_problem(const ProductCase& c, tarn::test::Random& random, Codes codes) {
  ProductProblem p;
  p.x.resize(u64{c.rows_max} * c.k);
  for (f32& value : p.x) value = random.normal();
  p.acts = c.k % 32 == 0 ? quantize_on_host(p.x, c.k, c.rows_max, c.k) : HostActs{};
  for (u64 j = 0; j < c.types.size(); ++j) {
    const TensorType type = c.types[j];
    const u64 bytes = row_bytes(type, c.k);
    p.rows.push_back(random_rows(random, type, c.n_out[j], c.k, codes));
    p.tiles.emplace_back(tiled_bytes(type, c.n_out[j], c.k));
    for (u32 r = 0; r < c.n_out[j]; r += kTileRows) {
      gpu_repack_rows({.type = type,
                       .rows = &p.rows[j][r * bytes],
                       .n_rows = std::min(c.n_out[j] - r, kTileRows),
                       .k = c.k,
                       .tile = &p.tiles[j][r * bytes]});
    }
    p.bias.emplace_back(c.n_out[j]);
    for (f32& b : p.bias.back()) b = random.normal();
  }
  return p;
}

// Rows [row_begin, row_begin + n_rows) of a problem in a launch for rows_max; the operands have
// rows_read of them (0: rows_max).
struct ProductRows {
  u32 row_begin, n_rows, rows_max, rows_read = 0;
};

// Outputs [rows_max, n_out + kGap], each matrix's in a buffer of its own.
inline std::vector<std::vector<f32>> run_product(const Gpu& gpu,
                                                 GpuLauncher<GpuMatvecArgs>* product,
                                                 const ProductCase& c, const ProductProblem& p,
                                                 const ProductRows& rows) {
  const u32 n_read = rows.rows_read == 0 ? rows.rows_max : rows.rows_read;
  const auto part = [&](const auto& all, u64 row_elements) {
    using Elements = std::remove_cvref_t<decltype(all)>;
    if (all.empty()) return Elements{};
    const auto begin = all.begin() + static_cast<i64>(rows.row_begin * row_elements);
    return Elements(begin, begin + static_cast<i64>(n_read * row_elements));
  };
  const DeviceArray<f32> x(gpu, part(p.x, c.k));
  const DeviceArray<i8> q(gpu, part(p.acts.q, c.k));
  const DeviceArray<U32x2> side(gpu, part(p.acts.side, c.k / 32));
  const DeviceArray<u32> device_n_rows(gpu, {rows.n_rows});
  std::vector<std::unique_ptr<DeviceArray<u8>>> weights;
  std::vector<std::unique_ptr<DeviceArray<f32>>> biases, outs;
  GpuMatvecArgs args{.matrices = {},
                     .n_matrices = static_cast<u32>(c.types.size()),
                     .k = c.k,
                     .x = x.data(),
                     .x_stride = c.k,
                     .acts = {q.data(), side.data()},
                     .n_rows = device_n_rows.data(),
                     .rows_max = rows.rows_max};
  for (u64 j = 0; j < c.types.size(); ++j) {
    const u64 stride = c.n_out[j] + kGap;
    weights.push_back(std::make_unique<DeviceArray<u8>>(gpu, p.tiles[j]));
    biases.push_back(std::make_unique<DeviceArray<f32>>(gpu, p.bias[j]));
    outs.push_back(std::make_unique<DeviceArray<f32>>(gpu, stride * rows.rows_max, kCanary));
    args.matrices[j] = {.type = c.types[j],
                        .store = c.store,
                        .n_out = c.n_out[j],
                        .weights = weights[j]->data(),
                        .bias = c.with_bias ? biases[j]->data() : nullptr,
                        .out = outs[j]->data(),
                        .out_stride = stride};
  }
  product(args, gpu.stream);
  std::vector<std::vector<f32>> results;
  results.reserve(outs.size());
  for (const auto& out : outs) results.push_back(out->host());
  return results;
}

// Problems whose codes of weights and activations are at the ends of their range, on every GPU:
// check(gpu, case, problem).
template <class Check>
void each_extreme_problem(u32 n_rows, tarn::test::Random& random, Check&& check) {
  for (const Gpu& gpu : gpus()) {
    for (const TensorType type : {TensorType::q8_0, TensorType::q4_k, TensorType::q6_k}) {
      for (const Codes codes : {Codes::largest, Codes::smallest}) {
        CAPTURE(type_traits(type).name);
        const ProductCase c{"ends", 512, n_rows, n_rows, {type}, {4}, false, Store::set};
        ProductProblem p = make_problem(c, random, codes);
        for (f32& value : p.x) value = value < 0.0f ? -1.0f : 1.0f;  // every q is 127 or -127
        p.acts = quantize_on_host(p.x, c.k, c.rows_max, c.k);
        check(gpu, c, p);
      }
    }
  }
}

}  // namespace tarn::kernels::test
