#include "kernels/gpu_table.h"

#include "kernels/common/cta.h"

namespace tarn::kernels {
namespace TARN_GPU {

GpuLauncher<GpuRmsNormArgs> rms_norm_gpu;
GpuLauncher<GpuQuantizeArgs> quantize_gpu;
GpuLauncher<GpuMatvecArgs> matvec_gpu;

}  // namespace TARN_GPU

#ifdef __CUDACC__
#define TARN_GPU_TABLE gpu_table_cuda
constexpr const char* kTableName = "cuda";
#else
#define TARN_GPU_TABLE gpu_table_emulated
constexpr const char* kTableName = "emulated";
#endif

const GpuTable& TARN_GPU_TABLE() {
  static constexpr GpuTable kTable = {
      .name = kTableName,
      .rms_norm = TARN_GPU::rms_norm_gpu,
      .quantize = TARN_GPU::quantize_gpu,
      .matvec = TARN_GPU::matvec_gpu,
  };
  return kTable;
}

}  // namespace tarn::kernels
