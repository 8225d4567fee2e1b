// Choice on a device: the codes that it chooses by, and what the host tells of a row.
#pragma once

#include "kernels/pq/pq_codes.h"
#include "platform/base/types.h"
#include "runtime/method/token_ranges.h"

namespace tarn::method {

// How the region of a head's codes is laid out, in bytes from its begin; the codebook begins there.
struct DeviceCodes {
  kernels::PqCodeFormat format = kernels::PqCodeFormat::bytes;
  u32 n_subspaces = 0;  // 0: there are no codes
  u32 dims = 0, adjacent_dims = 0, n_padded = 0;
  u32 capacity_tokens = 0;
  u64 head_bytes = 0;  // from one region to the next
  u64 half_norms_at = 0, codes_at = 0;
  u64 counts_at = 0;  // of pairs of codes; 0: the choice is by scores
  bool exist() const { return n_subspaces > 0; }
};

struct DeviceRow {
  TokenRanges ranges;
  u32 k;  // of the middle
  // Keys [n_coded, end) of the middle get codes in the row's step; n_counted of them had one before
  // a cut.
  u32 n_coded, n_counted;
};

}  // namespace tarn::method
