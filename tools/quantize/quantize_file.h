// Converts a model file to another tensor type: the same keys, tensors and shapes, with the weight
// matrices in the types that mix.h chooses.
//
//   keys     copied from the input, except general.file_type and general.quantization_version,
//            which are set, and general.alignment, which is left out: data gets GGUF's default
//            alignment
//   memory   the directory, and about 40 MiB per thread; tensors of any size stream
//   output   written under another name, and renamed when it is whole and on disk, so that OUT is
//            never half a model
//   errors   Failure with the exit code; nothing is left behind (except OUT.<n>.part after a kill)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/quantize/mix.h"

namespace tarn::tools {

// Whether a quantised model may be rounded again.
enum class Requantize : u8 { refuse, accept };

struct QuantizeOptions {
  std::string in;
  std::string out;  // may exist, but must not be `in`
  Quant quant{};
  Requantize requantize = Requantize::refuse;  // a float type is always allowed
  u32 n_threads = 2;
  std::function<void(u64 done_bytes, u64 total_bytes)> progress{};  // may be empty
};

struct QuantizeReport {
  struct PerTensor {
    std::string name;
    std::vector<u64> dims;
    kernels::TensorType from = kernels::TensorType::f32, to = kernels::TensorType::f32;
    u64 bytes = 0;  // in `to`
  };
  struct PerType {
    kernels::TensorType type = kernels::TensorType::f32;
    u32 n_tensors = 0;
    u64 bytes = 0;
  };
  u64 in_bytes = 0;
  u64 out_bytes = 0;
  f64 bits_per_weight = 0;
  std::vector<PerTensor> tensors;  // in the file's order
  std::vector<PerType> types;      // of the output, in the order of kTypeTraits; those that occur
  u32 n_replaced = 0;              // matrices whose rows did not fit their chosen type
  // The name of the input's quantised type; empty if it was not quantised.
  std::string quantized_in;
};

QuantizeReport quantize_file(const QuantizeOptions& options);
// Reports what quantize_file() would write, and writes nothing. It reads the directory alone, so it
// refuses the same options and types, but no values.
QuantizeReport plan_quantize(const QuantizeOptions& options);

}  // namespace tarn::tools
