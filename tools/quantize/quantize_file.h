// tools/quantize/quantize_file.h
//
// A model file in another tensor type: the same keys, tensors and shapes, the weight matrices in
// the types that mix.h chooses.
//
//   keys     as they lie in the input, but for general.file_type and general.quantization_version,
//            which are set, and general.alignment, which is left out: data is laid out anew by
//            GGUF's default
//   memory   the directory, and about 40 MiB per thread; tensors of any size stream
//   output   written beside its place and renamed when it is whole and on disk, so that a file of
//            that name is never half a model
//   errors   Failure with the exit code; nothing is left behind (a killed run leaves OUT.part,
//            which the next one overwrites)
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tools/quantize/mix.h"

namespace tarn::tools {

// Whether a model that is quantised already may be rounded again.
enum class Requantize : u8 { refuse, accept };

struct QuantizeOptions {
  std::string in;
  std::string out;  // may exist, but not be `in`
  Quant quant{};
  Requantize requantize = Requantize::refuse;  // to a float type it always may
  u32 n_threads = 2;
  std::function<void(u64 done_bytes, u64 total_bytes)> progress{};  // may be empty
};

struct QuantizeReport {
  struct PerType {
    kernels::TensorType type = kernels::TensorType::f32;
    u32 n_tensors = 0;
    u64 bytes = 0;
  };
  u64 in_bytes = 0;
  u64 out_bytes = 0;
  f64 bits_per_weight = 0;
  std::vector<PerType> types;  // of the output, in the order of kTypeTraits; those that occur
  u32 n_replaced = 0;          // matrices whose rows did not fit the type chosen for them
  // What the input's matrices were quantised in already, if they were: a name, or empty.
  std::string quantized_in;
};

QuantizeReport quantize_file(const QuantizeOptions& options);

}  // namespace tarn::tools
