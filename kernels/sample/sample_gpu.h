// kernels/sample/sample_gpu.h
//
// sample.h's questions about rows of logits, answered on a GPU, so that a greedy or top-k step
// brings a few bytes to the host instead of the row: the same answers, ties to the lower id.
//
//   logits    [rows_max, stride] f32, n each; cut into chunks of kGpuSampleChunk
//   summary   [rows_max, chunks]; of a chunk: argmax (an id of the row) and max of the finite ones
//             (0 and -inf if there is none), and how many are NaN or +inf
//   top       [rows_max, chunks, k]: the k best of each chunk, best first; NaN and +inf are left
//             out, and what is missing at the end has id 0xffffffff. k = 0: not wanted
//   rows      [n_rows, rows_max) are left alone; with n_rows = 0 nothing is read
//
// The host puts chunks together: merge_summaries().
//
// Cost   a CTA a chunk reads it once, all of it under way together.
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

// On the host: a row's summary, from its chunks'.
GpuLogitsSummary merge_summaries(const GpuLogitsSummary* chunks, u32 n_chunks);

}  // namespace tarn::kernels
