#include "runtime/exec/gpu/products.h"

#include <algorithm>
#include <bit>

#include "kernels/quant/gpu_tile.h"
#include "platform/base/assert.h"
#include "platform/base/checked.h"

namespace tarn::exec {
namespace {

constexpr u32 kRowsMax = kernels::kGpuMatvecRowsMax;  // of one launch of a product

}  // namespace

kernels::GpuQuantized GpuProducts::acts_for(Rows x, u64 k) {
  const bool is_wanted = step_.args().quantizes && k % kGpuActBlock == 0;
  quantized_ = is_wanted ? x.data : nullptr;
  return is_wanted ? step_.args().acts() : kernels::GpuQuantized{};
}

void GpuProducts::quantize(Rows x, u32 k, u32 n) {
  step_.enqueue(&kernels::GpuTable::quantize, {.x = x.data,
                                               .x_stride = x.stride,
                                               .out = step_.args().acts(),
                                               .n_rows = step_.count(n),
                                               .rows_max = n,
                                               .k = k});
}

void GpuProducts::multiply(Rows x, u32 n, std::span<const Projection> projections,
                           kernels::Store store) {
  TARN_ASSERT(projections.size() <= kernels::kGpuMatricesMax);
  const u32 k = projections[0].weight->k;
  const kernels::GpuMatvecArgs none{.matrices = {},
                                    .n_matrices = 0,
                                    .k = k,
                                    .x = x.data,
                                    .x_stride = x.stride,
                                    .acts = step_.args().acts(),
                                    .n_rows = step_.count(n),
                                    .rows_max = n};
  kernels::GpuMatvecArgs few = none, many = none;  // by 8 rows, and all rows at once
  bool is_quantized = false;
  for (const Projection& p : projections) {
    const kernels::TensorType type = p.weight->type;
    TARN_ASSERT(p.weight->k == k);
    is_quantized = is_quantized || type != kernels::TensorType::f16;
    const bool at_once = n > kRowsMax && kernels::gpu_matmat_takes(type, k);
    weight_bytes_ += p.weight->bytes() * (at_once ? 1 : ceil_div(n, kRowsMax));
    kernels::GpuMatvecArgs& product = at_once ? many : few;
    product.matrices[product.n_matrices++] = {.type = type,
                                              .store = store,
                                              .n_out = static_cast<u32>(p.weight->n_out),
                                              .weights = p.weight->tiled,
                                              .bias = p.bias,
                                              .out = p.out.data,
                                              .out_stride = p.out.stride};
  }
  if (is_quantized && quantized_ != x.data) quantize(x, k, n);
  quantized_ = nullptr;
  if (many.n_matrices > 0) step_.enqueue(&kernels::GpuTable::matmat, many);
  if (few.n_matrices == 0) return;
  for (u32 begin = 0; begin < n; begin += kRowsMax) {
    const u32 n_rows = std::min(kRowsMax, n - begin);
    kernels::GpuMatvecArgs product = few;
    product.x = from_row(x, begin).data;
    product.acts = step_.acts_from(begin, k);
    product.n_rows = step_.count(n_rows);
    product.rows_max = std::bit_ceil(n_rows);
    for (u32 i = 0; i < product.n_matrices; ++i) {
      product.matrices[i].out += begin * product.matrices[i].out_stride;
    }
    step_.enqueue(&kernels::GpuTable::matvec, product);
  }
}

}  // namespace tarn::exec
