// Writes a GGUF v3 file: keys and tensor names first, then the tensors' data in slabs, which
// several threads fill and write in parallel. A slab's bytes depend only on its place, so the file
// is the same for any number of threads.
//
//   order    set_*() and add_tensor() in any order, then write() once
//   memory   the directory, and at most 17 MiB per thread; tensors of any length stream
//   errors   std::runtime_error with the path; std::invalid_argument for impossible tensors
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/quant/tensor_type.h"

namespace tarn::tools {

// f32 to f16 bits, to nearest even; subnormals are kept, larger values become infinity.
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

// A run of whole blocks of one tensor, to be written to `out`.
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

  // Copies a value of another file, without its type id.
  void copy_value(std::string_view key, u32 type, std::span<const u8> value);

  // Returns the tensor's index. Throws if the rows are not a multiple of the type's block.
  u32 add_tensor(std::string name, kernels::TensorType type, std::vector<u64> dims);
  std::span<const GgufTensorInfo> tensors() const { return tensors_; }
  // Returns what write() will return.
  u64 file_bytes() const { return directory().size() + data_bytes_; }

  using Fill = std::function<void(const GgufSlab& slab)>;
  using Progress = std::function<void(u64 done_bytes, u64 total_bytes)>;
  // At most n_threads threads call `fill` at a time (fewer if the system refuses them, or for a
  // small file). It may be called twice for a slab, and must give the same bytes each time. One
  // thread calls `progress` (may be empty). Returns the file's length.
  u64 write(const std::string& path, u32 n_threads, const Fill& fill,
            const Progress& progress) const;

 private:
  std::string directory() const;
  // Fills the tensors' part of one chunk of the file. data_at: the begin of tensor data.
  void fill_chunk(u64 data_at, u64 chunk_at, std::span<u8> chunk, std::span<u8> buffer,
                  const Fill& fill) const;
  void begin_key(std::string_view key, u32 type);
  void begin_array(std::string_view key, u32 element_type, u64 count);

  std::string keys_;  // as in the file
  u64 n_keys_ = 0;
  std::vector<GgufTensorInfo> tensors_;
  u64 data_bytes_ = 0;
};

}  // namespace tarn::tools
