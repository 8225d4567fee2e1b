// sample.h's questions about rows of logits, answered on a GPU with the same answers. So a greedy
// or top-k step copies a few bytes to the host instead of the row.
//
//   logits    [rows_max, stride] f32, n each; cut into chunks of kGpuSampleChunk
//   summary   [rows_max, chunks]; per chunk: argmax (an id of the row) and max of the finite logits
//             (0 and -inf if there is none), and the number of NaN or +inf
//   top       [rows_max, chunks, k]: the k best of each chunk, best first, without NaN and +inf;
//             missing entries at the end have id 0xffffffff. k = 0: none
//   rows      [n_rows, rows_max) keep their values; with n_rows = 0 nothing is read
//
// The host merges the chunks with merge_summaries().
//
// Cost   one CTA reads a chunk once, with all loads in flight together.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

inline constexpr u32 kGpuSampleChunk = 2048;
constexpr u32 gpu_sample_chunks(u32 n) { return (n + kGpuSampleChunk - 1) / kGpuSampleChunk; }

struct GpuLogitsSummary {
  u32 argmax;
  f32 max;
  u32 n_not_finite;
};

struct GpuCandidate {
  f32 logit;
  u32 id;
};

struct GpuSampleArgs {
  const f32* logits;
  u64 stride;  // elements
  u32 n;
  u32 k;
  GpuLogitsSummary* summary;
  GpuCandidate* top;
  const u32* n_rows;
  u32 rows_max;
};

// Merges the chunks' summaries into the row's, on the host.
GpuLogitsSummary merge_summaries(const GpuLogitsSummary* chunks, u32 n_chunks);

}  // namespace tarn::kernels
