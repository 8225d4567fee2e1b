// tools/support/gguf_write.h
//
// Writes a GGUF v3 file: keys and tensor names first, then the tensors' data in slabs that several
// threads fill and write side by side. Each slab's bytes depend on its place alone, so the file is
// the same whatever the number of threads.
//
//   order    set_*() and add_tensor() in any order, then write() once
//   memory   the directory, and 17 MiB per thread; tensors of any length stream
//   errors   std::runtime_error with the path; std::invalid_argument for impossible tensors
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

// f32 to f16 bits, to nearest even, subnormals kept, too large becomes infinity.
u16 f16_bits(f32 value);
// f32 to bf16 bits, to nearest even.
u16 bf16_bits(f32 value);

struct GgufTensorInfo {
  std::string name;
  kernels::TensorType type = kernels::TensorType::f32;
  std::vector<u64> dims;  // dims[0] is the row length, as GGUF has it
  u64 offset = 0;         // from the start of the data section
  u64 bytes = 0;
};

// A run of whole blocks of one tensor; `out` is to be filled.
struct GgufSlab {
  u32 tensor_idx = 0;
  u64 slab_idx = 0;       // within the tensor
  u64 first_byte = 0;     // within the tensor
  u64 first_element = 0;  // in row-major order
  u64 n_elements = 0;
  std::span<u8> out;
};

class GgufWriter {
 public:
  void set_u32(std::string_view key, u32 value);
  void set_f32(std::string_view key, f32 value);
  void set_bool(std::string_view key, bool value);
  void set_string(std::string_view key, std::string_view value);
  void set_strings(std::string_view key, std::span<const std::string> values);
  void set_f32s(std::string_view key, std::span<const f32> values);
  void set_i32s(std::string_view key, std::span<const i32> values);

  // A value as it lies in another file, behind its type id.
  void copy_value(std::string_view key, u32 type, std::span<const u8> value);

  // Returns the tensor's index. Throws where the rows are no multiple of the type's block.
  u32 add_tensor(std::string name, kernels::TensorType type, std::vector<u64> dims);
  std::span<const GgufTensorInfo> tensors() const { return tensors_; }

  using Fill = std::function<void(const GgufSlab& slab)>;
  using Progress = std::function<void(u64 done_bytes, u64 total_bytes)>;
  // `fill` is called from at most n_threads threads at a time (fewer where the system refuses more,
  // or the file is small), now and then twice for a slab, and gives the same bytes each time;
  // `progress` (may be empty) is called from one thread. Returns the file's length.
  u64 write(const std::string& path, u32 n_threads, const Fill& fill,
            const Progress& progress) const;

 private:
  std::string directory() const;
  // Puts the tensors' part of one chunk of the file in place. data_at: where tensor data begins.
  void fill_chunk(u64 data_at, u64 chunk_at, std::span<u8> chunk, std::span<u8> buffer,
                  const Fill& fill) const;
  void begin_key(std::string_view key, u32 type);
  void begin_array(std::string_view key, u32 element_type, u64 count);

  std::string keys_;  // as they lie in the file
  u64 n_keys_ = 0;
  std::vector<GgufTensorInfo> tensors_;
  u64 data_bytes_ = 0;
};

}  // namespace tarn::tools
