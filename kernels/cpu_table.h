// Every CPU kernel of one ISA, as plain function pointers. The engine picks a table once, before
// the arena is sealed, prints its name, and passes it down. CPU features are not tested again
// later.
#pragma once

#include <span>
#include <string_view>

#include "kernels/act/act.h"
#include "kernels/attn/attn.h"
#include "kernels/matmul/matmul.h"
#include "kernels/norm/norm.h"
#include "kernels/pq/pq_cluster.h"
#include "kernels/pq/pq_pairs.h"
#include "kernels/pq/pq_score.h"
#include "kernels/quant/activations.h"
#include "kernels/quant/dequant.h"
#include "kernels/rope/rope.h"
#include "kernels/topk/topk.h"
#include "platform/base/result.h"

namespace tarn::kernels {

struct CpuTable {
  const char* isa;
  bool (*runs_here)();
  TileFn tile_rows;
  QuantizeActivationsFn quantize_activations;
  MatmulFn matmul;
  RmsNormFn rms_norm;
  RopeFn rope;
  SwigluFn swiglu;
  AddFn add;
  ExpFn exp;
  AttnFn attn;
  KvStoreFn kv_store;
  PqLoadFn pq_load;
  PqAssignFn pq_assign;
  PqAccumulateFn pq_accumulate;
  PqLutFn pq_lut;
  PqScoreFn pq_score;
  PqWeighFn pq_weigh;
  PqPairsFn pq_pairs;
  TopKFn top_k;
};

// Best first; the last one, "generic", runs everywhere. Tests walk all of them.
std::span<const CpuTable> cpu_tables();

// `wanted` is "auto" or a name. A name that this machine cannot run is an error, never a fallback:
// a benchmark of avx512 must not measure another ISA.
Result<const CpuTable*> cpu_table_select(std::string_view wanted);

}  // namespace tarn::kernels
