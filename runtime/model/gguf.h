// The directory of a GGUF v2/v3 file: its keys and its tensors. Every byte is untrusted until it is
// checked (ROBUSTNESS: classes G1-G9, T4). Reads through IoBackend, never maps the file, and keeps
// only the directory: strings and arrays are read from the file when they are needed.
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
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
// Bytes of a number in the file; 0 for strings and arrays.
u64 gguf_number_bytes(GgufType type);

class FileCursor;

struct GgufKey {
  std::string_view name;  // printable ASCII, terminated
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of an array
  u64 count = 1;                    // elements of an array
  u64 offset = 0;  // of the value in the file: of the first element, of a string's first byte
  u64 bytes = 0;   // of the value in the file; of an array of strings with their lengths
  u64 bits = 0;    // a number or boolean as it lies in the file, the upper bytes zero
};

struct GgufTensor {
  std::string_view name;  // printable ASCII, terminated
  u32 n_dims = 0;
  u64 dims[4] = {1, 1, 1, 1};  // dims[0] is the row length, as in GGUF
  u32 type_id = 0;             // GGUF's id: may be a type without kernels (inspect shows it)
  u64 offset = 0;              // in the file, absolute
  u64 bytes = 0;               // 0 where the type is unknown (runtime/model/gguf_types.h)
};

class GgufFile {
 public:
  // Reads and checks the directory. Keys and tensors live in `memory`, which must outlive this
  // object. At most kGgufMemoryBytesMax of it are used, and none after an error. `io` and `file`
  // are borrowed for the object's lifetime; nothing else may be in flight on `io` during its calls.
  static Result<GgufFile> read(IoBackend& io, IoFile file, Bump& memory);

  u32 version() const { return version_; }
  u64 file_bytes() const { return file_bytes_; }
  u64 data_offset() const { return data_offset_; }
  u64 alignment() const { return alignment_; }
  std::span<const GgufKey> keys() const { return keys_; }
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufKey* find_key(std::string_view name) const;
  const GgufTensor* find_tensor(std::string_view name) const;

  // Typed accessors: the stored type must match (get_u64 takes any integer type that holds the
  // value). A missing key is an empty optional; a wrong type is an error that names the key.
  Result<std::optional<u64>> get_u64(std::string_view key) const;
  Result<std::optional<f64>> get_f64(std::string_view key) const;  // f32 and f64, finite
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  // Copies the text into `memory`, terminated; it has at most `bytes_max` bytes and no byte 0. It
  // is not checked to be UTF-8: the caller that prints it does that.
  Result<std::optional<std::string_view>> get_string(std::string_view key, Bump& memory,
                                                     u64 bytes_max) const;

  // Streams an array in order. The element type must match; an error of the visitor ends it. The
  // text is bytes, valid only during the call.
  using StringVisitor = Result<void> (*)(void* context, u64 index, std::string_view text);
  Result<void> each_string(const GgufKey& key, StringVisitor visit, void* context) const;
  // out has key.count elements. A value that does not fit is an error with its index.
  Result<void> read_f32(const GgufKey& key, std::span<f32> out) const;  // f32, f64
  Result<void> read_i32(const GgufKey& key, std::span<i32> out) const;  // any integer type

 private:
  class Reader;
  FileCursor value_cursor(const GgufKey& key) const;

  IoBackend* io_ = nullptr;
  IoFile file_{};
  u32 version_ = 0;
  u64 file_bytes_ = 0;
  u64 data_offset_ = 0;
  u64 alignment_ = 0;
  std::span<std::byte> window_{};  // receives values that stay in the file
  std::span<const GgufKey> keys_{};
  std::span<const GgufTensor> tensors_{};
  // Indices in the order of the names: look-up by bisection, duplicates are neighbours. A sorted
  // order, unlike a hash table, is fast for every choice of names (class G9).
  std::span<const u32> keys_by_name_{};
  std::span<const u32> tensors_by_name_{};
};

}  // namespace tarn::model
