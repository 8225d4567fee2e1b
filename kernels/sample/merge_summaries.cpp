#include <limits>

#include "kernels/sample/sample_gpu.h"

namespace tarn::kernels {

// Ids ascend from chunk to chunk, so an equal logit comes too late.
GpuLogitsSummary merge_summaries(const GpuLogitsSummary* chunks, u32 n_chunks) {
  GpuLogitsSummary row{0, -std::numeric_limits<f32>::infinity(), 0};
  for (u32 i = 0; i < n_chunks; ++i) {
    row.n_not_finite += chunks[i].n_not_finite;
    if (!(chunks[i].max > row.max)) continue;
    row.argmax = chunks[i].argmax;
    row.max = chunks[i].max;
  }
  return row;
}

}  // namespace tarn::kernels
