// runtime/model/gguf.h
//
// The directory of a GGUF v2/v3 file: its keys and its tensors, every byte of it hostile until checked
// (ROBUSTNESS: classes G1-G9, T4). Reads through the io seam, never maps the file, keeps nothing but
// the directory: strings and arrays stay in the file and are read again by those who want them.
//
//   memory   the directory lies in a Bump the caller lends; limits are in gguf_limits.h, one table
//   thread   any, one at a time
//   errors   invalid_model with the key or tensor at fault and the file offset; io_failed
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "kernels/quant/tensor_type.h"
#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "platform/io/io_backend.h"

namespace tarn::model {

// GGUF's value types, with its ids.
enum class GgufType : u32 {
  u8 = 0, i8 = 1, u16 = 2, i16 = 3, u32 = 4, i32 = 5, f32 = 6, boolean = 7,
  string = 8, array = 9, u64 = 10, i64 = 11, f64 = 12,
};

struct GgufKey {
  std::string_view name;
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of an array
  u64 count = 1;                    // elements of an array
  u64 offset = 0;                   // of the value (of the first element) in the file
  u64 bytes = 0;                    // of the value in the file; strings with their lengths
};

struct GgufTensor {
  std::string_view name;
  u32 n_dims = 0;
  u64 dims[4] = {1, 1, 1, 1};  // dims[0] is the row length, as in GGUF
  u32 type_id = 0;             // GGUF's id: may be a type we cannot compute with (inspect shows it)
  u64 offset = 0;              // in the file, absolute
  u64 bytes = 0;               // 0 where the type is unknown
};

class GgufFile {
 public:
  // Reads and checks the directory. Keys and tensors live in `memory`, which must outlive this object.
  // `io` and `file` are borrowed for the life of the object.
  static Result<GgufFile> read(IoBackend& io, IoFile file, Bump& memory);

  u32 version() const { return version_; }
  u64 file_bytes() const { return file_bytes_; }
  u64 data_offset() const { return data_offset_; }
  std::span<const GgufKey> keys() const { return keys_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufKey* find_key(std::string_view name) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  // Typed accessors: the stored type must be the asked one (any integer type that holds the value is
  // taken for get_u64). A missing key is an empty optional; a wrong type is an error that names it.
  Result<std::optional<u64>> get_u64(std::string_view key) const;
  Result<std::optional<f64>> get_f64(std::string_view key) const;  // f32 and f64
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  // Into `memory`; at most `bytes_max` long.
  Result<std::optional<std::string_view>> get_string(std::string_view key, Bump& memory,
                                                     u64 bytes_max) const;

  // Streams an array in order, elements in blocks. The element type must match; the visitor's error ends it.
  using StringVisitor = Result<void> (*)(void* context, u64 index, std::string_view text);
  Result<void> each_string(const GgufKey& key, StringVisitor visit, void* context) const;
  // Numbers as f64/i64 by kind; out has key.count elements.
  Result<void> read_f32(const GgufKey& key, std::span<f32> out) const;   // f32, f64
  Result<void> read_i32(const GgufKey& key, std::span<i32> out) const;   // any integer type that fits

 private:
  IoBackend* io_ = nullptr;
  IoFile file_{};
  u32 version_ = 0;
  u64 file_bytes_ = 0;
  u64 data_offset_ = 0;
  std::span<const GgufKey> keys_{};
  std::span<const GgufTensor> tensors_{};
  std::span<const u32> key_index_{};     // open addressing by name hash
  std::span<const u32> tensor_index_{};
};

}  // namespace tarn::model
