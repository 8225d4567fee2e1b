// tests/kernels/quant/isa_list.h
//
// The quant and matmul kernels of every ISA that this build has and this machine runs.
#pragma once

#include <vector>

#include "kernels/matmul/matmul.h"
#include "kernels/quant/activations.h"
#include "kernels/quant/dequant.h"

namespace tarn::kernels::test {

struct Isa {
  const char* name;
  TileFn tile_rows;
  QuantizeActivationsFn quantize_activations;
  MatmulFn matmul;
};

inline std::vector<Isa> isa_list() {
  std::vector<Isa> list;
#ifdef TARN_HAVE_AVX512
  if (__builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq")) {
    list.push_back({"avx512", tile_rows_avx2, quantize_activations_avx2, matmul_avx512});
  }
#endif
#ifdef TARN_HAVE_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    list.push_back({"avx2", tile_rows_avx2, quantize_activations_avx2, matmul_avx2});
  }
#endif
  list.push_back({"generic", tile_rows_generic, quantize_activations_generic, matmul_generic});
  return list;
}

}  // namespace tarn::kernels::test
