// kernels/sample/sample_gpu.h
//
// sample.h's questions about rows of logits, answered on a GPU, so that a greedy or top-k step
// brings a few bytes to the host instead of the row: the same answers, ties to the lower id.
//
//   logits    [rows_max, stride] f32, n each
//   summary   [rows_max]; argmax and max of the finite ones (0 and -inf if there is none), and how
//             many are NaN or +inf
//   top       [rows_max, k]: the k best of n, best first; NaN and +inf are left out, and what is
//             missing at the end (k > n) has id 0xffffffff. k = 0: not wanted
//   rows      [n_rows, rows_max) are left alone
//
// Cost   one CTA a row reads the row once, and then, for each of the k, the 1/512 of it that the
//        last winner's thread owns.
#pragma once

#include "platform/base/types.h"

namespace tarn::kernels {

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

}  // namespace tarn::kernels
