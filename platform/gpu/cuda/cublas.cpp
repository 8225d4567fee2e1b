// platform/gpu/cuda/cublas.cpp: cuBLAS behind dlopen. The few functions and numbers that we use are
// part of its ABI since cuBLAS 11. They are declared here, so that its header is not needed either.
#include <cuda_runtime.h>
#include <dlfcn.h>

#include "platform/base/assert.h"
#include "platform/gpu/gpu_blas.h"

namespace tarn {
namespace {

using Handle = void*;
using CreateFn = int (*)(Handle* handle);
using DestroyFn = int (*)(Handle handle);
using SetStreamFn = int (*)(Handle handle, cudaStream_t stream);
using SetWorkspaceFn = int (*)(Handle handle, void* workspace, size_t bytes);
using GemmExFn = int (*)(Handle handle, int transposes_a, int transposes_b, int m, int n, int k,
                         const void* alpha, const void* a, int a_type, int a_stride, const void* b,
                         int b_type, int b_stride, const void* beta, void* c, int c_type,
                         int c_stride, int compute_type, int algorithm);

enum Function : u32 { kCreate, kDestroy, kSetStream, kSetWorkspace, kGemmEx };
constexpr const char* kNames[] = {"cublasCreate_v2", "cublasDestroy_v2", "cublasSetStream_v2",
                                  "cublasSetWorkspace_v2", "cublasGemmEx"};

constexpr int kOpN = 0, kOpT = 1;          // cublasOperation_t
constexpr int kRealF32 = 0, kRealF16 = 2;  // cudaDataType
constexpr int kCompute32F = 68;            // cublasComputeType_t: f32 sums, no shortcuts
constexpr int kDefaultAlgorithm = -1;      // cublasGemmAlgo_t

// cuBLAS has its own CUDA runtime, so any version will do that this driver starts: this build's
// first.
#if CUDART_VERSION >= 13000
constexpr const char* kLibraries[] = {"libcublas.so.13", "libcublas.so.12"};
#else
constexpr const char* kLibraries[] = {"libcublas.so.12", "libcublas.so.13"};
#endif

// The library is never unloaded: its runtime has handlers that run at the process's end.
void* open_library(const char* path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE); }

template <class Fn>
Fn function(void* const (&functions)[5], Function which) {
  return reinterpret_cast<Fn>(functions[which]);
}

}  // namespace

Result<void> GpuBlas::open(const GpuBlasOpenArgs& args) {
  TARN_ASSERT(cublas_.library == nullptr);
  const char* path = args.library_path;
  if (path != nullptr) {
    cublas_.library = open_library(path);
  } else {
    for (const char* name : kLibraries) {
      path = name;
      cublas_.library = open_library(path);
      if (cublas_.library != nullptr) break;
    }
  }
  if (cublas_.library == nullptr) {
    return fail({.status = Status::unsupported,
                 .hint = "cuBLAS is absent: our own kernels compute large products",
                 .detail = Detail(path)});
  }
  for (u32 i = 0; i < 5; ++i) cublas_.functions[i] = dlsym(cublas_.library, kNames[i]);
  int status = 0;
  for (const void* found : cublas_.functions) status = found == nullptr ? -1 : status;
  if (status == 0) status = function<CreateFn>(cublas_.functions, kCreate)(&cublas_.handle);
  (void)cudaGetLastError();  // its status has reported the error
  cublas_.device = args.device;
  cublas_.workspace = args.workspace;
  cublas_.workspace_bytes = args.workspace_bytes;
  if (status == 0) status = bind(args.device->stream(StreamId::compute));
  if (status == 0) return {};
  close();
  return fail({.status = Status::unsupported,
               .hint = "cuBLAS is installed but does not start: our own kernels compute large "
                       "products",
               .detail = Detail(path),
               .figures = {{{"cublas_status", static_cast<u64>(status)}}}});
}

void GpuBlas::close() {
  // cublasDestroy() waits for the GPU, and a lost GPU may never answer.
  if (cublas_.handle != nullptr && !cublas_.device->is_lost()) {
    (void)function<DestroyFn>(cublas_.functions, kDestroy)(cublas_.handle);
  }
  if (cublas_.library != nullptr) dlclose(cublas_.library);
  cublas_ = {};
}

// Sets the handle's stream and workspace. cublasSetStream() drops the workspace; without one the
// library would allocate memory, even inside a capture.
i32 GpuBlas::bind(GpuStream* stream) {
  if (cublas_.stream == stream) return 0;
  cublas_.stream = nullptr;
  i32 status = function<SetStreamFn>(cublas_.functions, kSetStream)(
      cublas_.handle, reinterpret_cast<cudaStream_t>(stream));
  if (status == 0) {
    status = function<SetWorkspaceFn>(cublas_.functions, kSetWorkspace)(
        cublas_.handle, cublas_.workspace.raw(), cublas_.workspace_bytes);
  }
  if (status == 0) cublas_.stream = stream;
  return status;
}

void GpuBlas::product(const GpuBlasArgs& args, GpuStream* on) {
  TARN_ASSERT(is_open());
  TARN_ASSERT(args.k % 8 == 0);
  const f32 one = 1, zero = 0;
  // cuBLAS matrices are column-major: our rows are its columns, so it computes out^T = w * x^T.
  const int m = static_cast<int>(args.m), n = static_cast<int>(args.n),
            k = static_cast<int>(args.k);
  int status = bind(on);
  if (status == 0) {
    status = function<GemmExFn>(cublas_.functions, kGemmEx)(
        cublas_.handle, kOpT, kOpN, n, m, k, &one, args.w, kRealF16, k, args.x, kRealF16, k, &zero,
        args.out, kRealF32, n, kCompute32F, kDefaultAlgorithm);
  }
  if (cublas_.error == 0) cublas_.error = status;
}

Result<void> GpuBlas::check() {
  if (cublas_.error == 0) return {};
  const i32 status = cublas_.error;
  cublas_.error = 0;
  return fail({.status = Status::internal,
               .hint = "cuBLAS refused a product",
               .figures = {{{"cublas_status", static_cast<u64>(status)}}}});
}

}  // namespace tarn
