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
  return {{"generic", tile_rows_generic, quantize_activations_generic, matmul_generic}};
}

}  // namespace tarn::kernels::test
