// Every GPU kernel's launcher, as plain function pointers. A launcher enqueues on the stream,
// allocates nothing, waits for nothing and returns nothing. Its args are a POD of device addresses
// and of sizes that are fixed for a captured graph. Kernels read what varies from step to step (row
// counts, tokens, positions, visible slots, places of pages) from device memory.
//
// The same sources are compiled twice: for CUDA (gpu_table_cuda, in builds with TARN_CUDA) and for
// the emulator of tests/support/emulator, whose header declares gpu_table_emulated.
#pragma once

#include "kernels/act/act_gpu.h"
#include "kernels/attn/attn_gpu.h"
#include "kernels/attn/gather_slots_gpu.h"
#include "kernels/common/cta_types.h"
#include "kernels/matmul/matmat_gpu.h"
#include "kernels/matmul/matmul_gpu.h"
#include "kernels/matmul/matvec_gpu.h"
#include "kernels/norm/norm_gpu.h"
#include "kernels/pq/pq_gpu.h"
#include "kernels/quant/activations_gpu.h"
#include "kernels/quant/dequant_gpu.h"
#include "kernels/rope/rope_gpu.h"
#include "kernels/sample/sample_gpu.h"
#include "kernels/topk/topk_gpu.h"
#include "platform/base/gpu_stream.h"

namespace tarn::kernels {

template <class Args>
using GpuLauncher = void(const Args& args, GpuStream* stream);

struct GpuTable {
  const char* name;  // "cuda" or "emulated"
  // Lists every kernel that a launcher may ever launch. CUDA loads a kernel at its first launch and
  // allocates memory for it then; so the engine loads all before READY.
  void (*each_kernel)(const KernelSink& sink);
  GpuLauncher<GpuEmbedArgs>* embed;
  GpuLauncher<GpuDequantizeArgs>* dequantize;
  GpuLauncher<GpuRmsNormArgs>* rms_norm;
  GpuLauncher<GpuQuantizeArgs>* quantize;
  GpuLauncher<GpuMatvecArgs>* matvec;
  GpuLauncher<GpuMatvecArgs>* matmat;
  GpuLauncher<GpuNarrowArgs>* narrow;
  GpuLauncher<GpuMatmulArgs>* matmul;
  GpuLauncher<GpuRopeArgs>* rope;
  GpuLauncher<GpuKvAppendArgs>* kv_append;
  GpuLauncher<GpuKvReadArgs>* kv_read;
  GpuLauncher<GpuAttnArgs>* attend;
  GpuLauncher<GpuSwigluArgs>* swiglu;
  GpuLauncher<GpuAddArgs>* add;
  GpuLauncher<GpuGatherArgs>* gather;
  GpuLauncher<GpuSampleArgs>* sample;
  // For rows with selection.
  GpuLauncher<GpuPqLutArgs>* pq_lut;
  GpuLauncher<GpuPqScoreArgs>* pq_score;
  GpuLauncher<GpuPqWeighArgs>* pq_weigh;
  GpuLauncher<GpuPqPairsArgs>* pq_pairs;
  GpuLauncher<GpuPqAssignArgs>* pq_assign;
  GpuLauncher<GpuTopKArgs>* top_k;
  GpuLauncher<GpuGatherSlotsArgs>* gather_slots;
};

const GpuTable& gpu_table_cuda();  // defined in builds with CUDA

}  // namespace tarn::kernels
