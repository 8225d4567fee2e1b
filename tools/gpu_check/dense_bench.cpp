#include "tools/gpu_check/dense_bench.h"

#include <algorithm>

#include "tools/support/exit_code.h"

namespace tarn::gpu_check {
namespace {

using kernels::TensorType;

class DenseBench {
 public:
  explicit DenseBench(const DenseArgs& args) : args_(args), device_(*args.device) {
    x_ = device_.reserve_random(u64{args.rows} * args.k * sizeof(f32)).as<f32>().raw();
    narrowed_ = device_.reserve(u64{args.rows} * args.k * sizeof(u16)).as<u16>().raw();
    w_ = device_.reserve(u64{args.n_out} * args.k * sizeof(u16)).as<u16>().raw();
    out_ = device_.reserve(u64{args.rows} * args.n_out * sizeof(f32)).as<f32>().raw();
    n_rows_ = device_.upload(std::vector<u32>{args.rows});
    n_few_ = device_.upload(std::vector<u32>{kernels::kGpuMatvecRowsMax});
  }

  std::vector<PromptFigure> run() {
    for (const TensorType type :
         {TensorType::q4_k, TensorType::q6_k, TensorType::q8_0, TensorType::f16}) {
      const std::string of_type = std::string(" ") + kernels::type_traits(type).name;
      if (type == TensorType::f16) measure("matvec f16", [&](u32 i) { few_rows(i); });
      measure("matmul" + of_type, [&](u32 i) {
        make_dense(type, i);
        matmul();
      });
      if (args_.blas == nullptr) continue;
      measure("cuBLAS" + of_type, [&](u32 i) {
        make_dense(type, i);
        args_.blas->product(
            {.x = narrowed_, .w = w_, .out = out_, .m = args_.rows, .n = args_.n_out, .k = args_.k},
            device_.stream());
      });
      tools::value_of(args_.blas->check());
    }
    return std::move(figures_);
  }

 private:
  void measure(const std::string& name, const std::function<void(u32)>& enqueue) {
    figures_.push_back({.name = name,
                        .rows = args_.rows,
                        .ops = 2 * u64{args_.rows} * args_.n_out * args_.k,
                        .ns = device_.ns_per_call(args_.timing, enqueue)});
  }
  void make_dense(TensorType type, u32 i) {
    args_.table->dequantize({.type = type,
                             .weights = args_.weights(type, i),
                             .n_out = args_.n_out,
                             .k = args_.k,
                             .out = w_},
                            device_.stream());
    args_.table->narrow({.x = x_,
                         .x_stride = args_.k,
                         .out = narrowed_,
                         .n_rows = n_rows_,
                         .rows_max = args_.rows,
                         .d = args_.k},
                        device_.stream());
  }
  void matmul() {
    args_.table->matmul({.x = narrowed_,
                         .w = w_,
                         .bias = nullptr,
                         .out = out_,
                         .out_stride = args_.n_out,
                         .n_rows = n_rows_,
                         .rows_max = args_.rows,
                         .n_out = args_.n_out,
                         .k = args_.k,
                         .store = kernels::Store::set},
                        device_.stream());
  }
  // As runtime/engine/gpu_backend.cpp multiplies f16 weights.
  void few_rows(u32 i) {
    constexpr u32 kFew = kernels::kGpuMatvecRowsMax;
    const std::byte* weights = args_.weights(TensorType::f16, i);
    for (u32 row = 0; row + kFew <= args_.rows; row += kFew) {
      args_.table->matvec({.matrices = {{.type = TensorType::f16,
                                         .store = kernels::Store::set,
                                         .n_out = args_.n_out,
                                         .weights = weights,
                                         .bias = nullptr,
                                         .out = out_ + u64{row} * args_.n_out,
                                         .out_stride = args_.n_out}},
                           .n_matrices = 1,
                           .k = args_.k,
                           .x = x_ + u64{row} * args_.k,
                           .x_stride = args_.k,
                           .acts = {},
                           .n_rows = n_few_,
                           .rows_max = kFew},
                          device_.stream());
    }
  }

  const DenseArgs& args_;
  BenchDevice& device_;
  std::vector<PromptFigure> figures_;
  f32* x_ = nullptr;
  u16* narrowed_ = nullptr;
  u16* w_ = nullptr;
  f32* out_ = nullptr;
  const u32* n_rows_ = nullptr;
  const u32* n_few_ = nullptr;
};

}  // namespace

std::vector<PromptFigure> bench_dense(const DenseArgs& args) { return DenseBench(args).run(); }

}  // namespace tarn::gpu_check
