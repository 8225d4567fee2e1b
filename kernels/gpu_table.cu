#include "kernels/gpu_table.h"

#include "kernels/common/cta.h"

namespace tarn::kernels {
namespace TARN_GPU {

GpuLauncher<GpuEmbedArgs> embed_gpu;
GpuLauncher<GpuDequantizeArgs> dequantize_gpu;
GpuLauncher<GpuRmsNormArgs> rms_norm_gpu;
GpuLauncher<GpuQuantizeArgs> quantize_gpu;
GpuLauncher<GpuMatvecArgs> matvec_gpu;
GpuLauncher<GpuMatvecArgs> matmat_gpu;
GpuLauncher<GpuNarrowArgs> narrow_gpu;
GpuLauncher<GpuMatmulArgs> matmul_gpu;
GpuLauncher<GpuRopeArgs> rope_gpu;
GpuLauncher<GpuKvAppendArgs> kv_append_gpu;
GpuLauncher<GpuKvReadArgs> kv_read_gpu;
GpuLauncher<GpuAttnArgs> attend_gpu;
GpuLauncher<GpuSwigluArgs> swiglu_gpu;
GpuLauncher<GpuAddArgs> add_gpu;
GpuLauncher<GpuGatherArgs> gather_gpu;
GpuLauncher<GpuSampleArgs> sample_gpu;
GpuLauncher<GpuPqLutArgs> pq_lut_gpu;
GpuLauncher<GpuPqScoreArgs> pq_score_gpu;
GpuLauncher<GpuPqWeighArgs> pq_weigh_gpu;
GpuLauncher<GpuPqPairsArgs> pq_pairs_gpu;
GpuLauncher<GpuPqAssignArgs> pq_assign_gpu;
GpuLauncher<GpuTopKArgs> top_k_gpu;
GpuLauncher<GpuGatherSlotsArgs> gather_slots_gpu;

using TellKernels = void(const KernelSink& sink);
TellKernels act_kernels;
TellKernels attn_kernels;
TellKernels gather_slots_kernels;
TellKernels kv_append_kernels;
TellKernels kv_read_kernels;
TellKernels matmat_kernels;
TellKernels matmul_kernels;
TellKernels matvec_kernels;
TellKernels norm_kernels;
TellKernels pq_kernels;
TellKernels activations_kernels;
TellKernels dequant_kernels;
TellKernels rope_kernels;
TellKernels sample_kernels;
TellKernels topk_kernels;

void each_kernel(const KernelSink& sink) {
  static constexpr TellKernels* kFamilies[] = {
      act_kernels,     attn_kernels,   gather_slots_kernels, kv_append_kernels,
      kv_read_kernels, matmat_kernels, matmul_kernels,       matvec_kernels,
      norm_kernels,    pq_kernels,     activations_kernels,  dequant_kernels,
      rope_kernels,    sample_kernels, topk_kernels};
  for (TellKernels* tell_family : kFamilies) tell_family(sink);
}

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
      .each_kernel = TARN_GPU::each_kernel,
      .embed = TARN_GPU::embed_gpu,
      .dequantize = TARN_GPU::dequantize_gpu,
      .rms_norm = TARN_GPU::rms_norm_gpu,
      .quantize = TARN_GPU::quantize_gpu,
      .matvec = TARN_GPU::matvec_gpu,
      .matmat = TARN_GPU::matmat_gpu,
      .narrow = TARN_GPU::narrow_gpu,
      .matmul = TARN_GPU::matmul_gpu,
      .rope = TARN_GPU::rope_gpu,
      .kv_append = TARN_GPU::kv_append_gpu,
      .kv_read = TARN_GPU::kv_read_gpu,
      .attend = TARN_GPU::attend_gpu,
      .swiglu = TARN_GPU::swiglu_gpu,
      .add = TARN_GPU::add_gpu,
      .gather = TARN_GPU::gather_gpu,
      .sample = TARN_GPU::sample_gpu,
      .pq_lut = TARN_GPU::pq_lut_gpu,
      .pq_score = TARN_GPU::pq_score_gpu,
      .pq_weigh = TARN_GPU::pq_weigh_gpu,
      .pq_pairs = TARN_GPU::pq_pairs_gpu,
      .pq_assign = TARN_GPU::pq_assign_gpu,
      .top_k = TARN_GPU::top_k_gpu,
      .gather_slots = TARN_GPU::gather_slots_gpu,
  };
  return kTable;
}

}  // namespace tarn::kernels
