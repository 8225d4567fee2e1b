// The products of a prompt's rows, in the shape of gate or up.
//
//   matmat   the engine's kernel for quantised weights
//   matvec   the engine's kernel for f16 weights, 8 rows at a time
//   matmul,  ways that it does not go: weights dequantised to f16, rows narrowed to f16, and a
//   cuBLAS   dense product of both, by our plain kernel and by the vendor's library; at the most
//            rows
#include <algorithm>

#include "tools/gpu_check/bench.h"
#include "tools/support/exit_code.h"

namespace tarn::gpu_check {
namespace {

using kernels::TensorType;

class PromptBench {
 public:
  explicit PromptBench(Bench& bench)
      : bench_(bench),
        k_(bench.shape().d_model),
        n_out_(bench.shape().n_ff),
        rows_max_(std::ranges::max(bench.shape().prompt_rows)) {
    const u64 n_x = u64{rows_max_} * k_;
    acts_ = bench.random_acts(n_x);
    x_ = bench.floats(n_x);
    narrowed_ = bench.reserve(n_x * sizeof(u16)).as<u16>().raw();
    dense_ = bench.reserve(u64{n_out_} * k_ * sizeof(u16)).as<u16>().raw();
    out_ = bench.floats(u64{rows_max_} * n_out_);
    n_rows_ = bench.upload(std::vector<u32>{rows_max_});
    n_few_ = bench.upload(std::vector<u32>{kernels::kGpuMatvecRowsMax});
  }

  void run() {
    for (const TensorType type : {TensorType::q4_k, TensorType::q6_k, TensorType::q8_0}) {
      if (kernels::gpu_matmat_takes(type, k_)) measure_matmat(type);
    }
    for (const TensorType type :
         {TensorType::q4_k, TensorType::q6_k, TensorType::q8_0, TensorType::f16}) {
      measure_dense(type);
    }
  }

 private:
  Figure figure(const char* name, TensorType type, u32 rows) const {
    return {.group = "prompt",
            .name = std::string(name) + kernels::type_traits(type).name,
            .rows = rows,
            .ops = 2 * u64{rows} * n_out_ * k_};
  }
  const std::byte* weights(TensorType type, u32 i) const {
    return bench_.piece(matrix_bytes(type, n_out_, k_), i);
  }
  kernels::GpuMatrix matrix(TensorType type, u32 i, f32* out) const {
    return {.type = type,
            .store = kernels::Store::set,
            .n_out = n_out_,
            .weights = weights(type, i),
            .bias = nullptr,
            .out = out,
            .out_stride = n_out_};
  }

  void measure_matmat(TensorType type) {
    for (const u32 rows : bench_.shape().prompt_rows) {
      const u32* n_rows = bench_.upload(std::vector<u32>{rows});
      bench_.measure(figure("matmat ", type, rows), [&](u32 i) {
        bench_.table().matmat({.matrices = {matrix(type, i, out_)},
                               .n_matrices = 1,
                               .k = k_,
                               .x = nullptr,
                               .x_stride = 0,
                               .acts = acts_,
                               .n_rows = n_rows,
                               .rows_max = rows},
                              bench_.stream());
      });
    }
  }

  void measure_dense(TensorType type) {
    // These calls are long, and the library may not allow capture.
    const Bench::Timing timing{.n_calls = std::min(bench_.shape().calls_per_graph, 4u),
                               .repetitions = std::min(bench_.shape().repetitions, 2u),
                               .in_graph = false};
    if (type == TensorType::f16) {
      bench_.measure(figure("matvec ", type, rows_max_), timing, [&](u32 i) { few_rows(i); });
    }
    bench_.measure(figure("matmul ", type, rows_max_), timing, [&](u32 i) {
      make_dense(type, i);
      bench_.table().matmul({.x = narrowed_,
                             .w = dense_,
                             .bias = nullptr,
                             .out = out_,
                             .out_stride = n_out_,
                             .n_rows = n_rows_,
                             .rows_max = rows_max_,
                             .n_out = n_out_,
                             .k = k_,
                             .store = kernels::Store::set},
                            bench_.stream());
    });
    if (bench_.blas() == nullptr) return;
    bench_.measure(figure("cuBLAS ", type, rows_max_), timing, [&](u32 i) {
      make_dense(type, i);
      bench_.blas()->product(
          {.x = narrowed_, .w = dense_, .out = out_, .m = rows_max_, .n = n_out_, .k = k_},
          bench_.stream());
    });
    tools::value_of(bench_.blas()->check());
  }
  void make_dense(TensorType type, u32 i) {
    bench_.table().dequantize(
        {.type = type, .weights = weights(type, i), .n_out = n_out_, .k = k_, .out = dense_},
        bench_.stream());
    bench_.table().narrow({.x = x_,
                           .x_stride = k_,
                           .out = narrowed_,
                           .n_rows = n_rows_,
                           .rows_max = rows_max_,
                           .d = k_},
                          bench_.stream());
  }
  void few_rows(u32 i) {
    constexpr u32 kFew = kernels::kGpuMatvecRowsMax;
    for (u32 row = 0; row + kFew <= rows_max_; row += kFew) {
      bench_.table().matvec({.matrices = {matrix(TensorType::f16, i, out_ + u64{row} * n_out_)},
                             .n_matrices = 1,
                             .k = k_,
                             .x = x_ + u64{row} * k_,
                             .x_stride = k_,
                             .acts = {},
                             .n_rows = n_few_,
                             .rows_max = kFew},
                            bench_.stream());
    }
  }

  Bench& bench_;
  u32 k_, n_out_, rows_max_;
  kernels::GpuQuantized acts_{};
  f32* x_ = nullptr;
  u16* narrowed_ = nullptr;
  u16* dense_ = nullptr;
  f32* out_ = nullptr;
  const u32* n_rows_ = nullptr;
  const u32* n_few_ = nullptr;
};

}  // namespace

void bench_prompts(Bench& bench) {
  if (!bench.shape().prompt_rows.empty()) PromptBench(bench).run();
}

}  // namespace tarn::gpu_check
