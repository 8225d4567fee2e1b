// The directory of a GGUF v2/v3 file: its keys and its tensors. Every byte is untrusted until it is
// checked (ROBUSTNESS: classes G1-G9, T4), when it is used: names and values of keys that no model
// needs may be anything that lies in the directory. Reads through IoBackend, never maps the file,
// and keeps only the directory: strings and arrays are read from the file when they are needed.
//
//   memory   the directory lies in a Bump the caller lends; its limits are GgufLimits
//   thread   any, one at a time
//   errors   invalid_model with the key or tensor at fault and the file offset; io_failed
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "platform/io/io_backend.h"

namespace tarn::model {

// The only table of the reader's limits, with their reasons. A file beyond a limit is refused, and
// the error has the limit, so that a real file that needs more is recognised.
struct GgufLimits {
  // Real files have 20 to 60 keys.
  static constexpr u64 kKeysMax = 4096;
  // 512 layers of 12 tensors are 6 K; the largest sharded MoE files hold 3 K.
  static constexpr u64 kTensorsMax = 16384;
  // The format's own limit.
  static constexpr u64 kKeyNameBytesMax = 65535;
  // The names of all keys, with their terminators. The longest name in use has 55 bytes.
  static constexpr u64 kKeyNamesBytesMax = kKeysMax * 257;
  // The format's own limit.
  static constexpr u64 kTensorNameBytesMax = 64;
  // Keys, arrays and the tensor table together. The largest vocabulary in use (262 K tokens with
  // their merges) has 16 MiB, and reading 32 MiB stays within the time limit of a refusal (100 ms).
  static constexpr u64 kDirectoryBytesMax = 32 * kMiB;
  // The largest vocabulary has 0.3 M tokens and 0.5 M merges.
  static constexpr u64 kArrayElementsMax = u64{4} * 1024 * 1024;
  // A string in an array that is read must fit into the window below; the longest tokens are some
  // hundred spaces.
  static constexpr u64 kArrayStringBytesMax = 64 * kKiB;
  // Alignment of the tensors' data. The format demands a multiple of 8; above 1 MiB a file could
  // claim space by padding.
  static constexpr u64 kAlignmentMin = 8;
  static constexpr u64 kAlignmentMax = kMiB;
  static constexpr u64 kAlignmentDefault = 32;  // the format's
  static constexpr u32 kDimsMax = 4;            // the format's
  // Elements of one tensor: products of valid dimensions stay far below 2^64, counters fit an i64.
  static constexpr u64 kElementsMax = u64{1} << 42;
  // The window through which the directory is read: room for several strings, and an efficient size
  // of a disk's read.
  static constexpr u64 kWindowBytes = 256 * kKiB;
};

// The most that GgufFile::read() takes from its Bump, also for a refused file. Each key needs its
// entry, its terminated name and its place in the index. Each tensor needs the same, and a place in
// the order of offsets during the check.
inline constexpr u64 kGgufMemoryBytesMax =
    GgufLimits::kWindowBytes + 4 * kKiB + GgufLimits::kKeysMax * (64 + 4) +
    GgufLimits::kKeyNamesBytesMax +
    GgufLimits::kTensorsMax * (88 + GgufLimits::kTensorNameBytesMax + 1 + 4 + 4) + 4 * kKiB;
static_assert(kGgufMemoryBytesMax <= 16 * kMiB);

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

// Name and block geometry of every tensor type of the format. It includes types without kernels,
// because their extent in the file is checked too and errors name them.
struct GgufTensorTypeInfo {
  u32 id;
  const char* name;  // lower case
  u32 block_elems;   // along a row
  u32 block_bytes;
};

// nullptr for an id that the table lacks.
const GgufTensorTypeInfo* gguf_tensor_type(u32 id);
// "unknown" for an id that the table lacks.
const char* gguf_tensor_type_name(u32 id);

class FileCursor;

struct GgufKey {
  std::string_view name;  // any bytes, terminated
  GgufType type = GgufType::u8;
  GgufType element = GgufType::u8;  // of an array
  u64 count = 1;                    // elements of an array
  u64 offset = 0;  // of the value in the file: of the first element, of a string's first byte
  u64 bytes = 0;   // of the value in the file; of an array of strings with their lengths
  u64 bits = 0;    // of a number or boolean, the upper bytes zero
};

struct GgufTensor {
  std::string_view name;  // any bytes, terminated
  u32 n_dims = 0;
  u64 dims[4] = {1, 1, 1, 1};  // dims[0] is the row length, as in GGUF
  u32 type_id = 0;             // GGUF's id: may be a type without kernels (inspect shows it)
  u64 offset = 0;              // in the file, absolute
  u64 bytes = 0;               // 0 where the type is unknown
};

// Whether the tensors' data must be there: a plan needs the file's directory alone. A file for
// big-endian machines can be read where only its directory is used.
enum class GgufData : u8 { needed, may_miss, of_any_order };

class GgufFile {
 public:
  // Reads and checks the directory. Keys and tensors live in `memory`, which must outlive this
  // object. At most kGgufMemoryBytesMax of it are used, and none after an error. `io` and `file`
  // are borrowed for the object's lifetime; nothing else may be in flight on `io` during its calls.
  static Result<GgufFile> read(IoBackend& io, IoFile file, Bump& memory,
                               GgufData data = GgufData::needed);

  u32 version() const { return version_; }
  bool is_big_endian() const { return is_big_endian_; }
  u64 file_bytes() const { return file_bytes_; }
  u64 missing_bytes() const { return missing_bytes_; }  // of the tensors' data
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
  Result<void> read_f32(const GgufKey& key, std::span<f32> out) const;  // any type of numbers
  Result<void> read_i32(const GgufKey& key, std::span<i32> out) const;  // any integer type
  // A short piece of a tensor's data, valid until the next read: at most kArrayStringBytesMax.
  Result<const std::byte*> read_data(u64 offset, u64 n_bytes) const;

 private:
  class Reader;
  FileCursor value_cursor(const GgufKey& key) const;
  u64 number_bits(const std::byte* bytes, GgufType type) const;

  IoBackend* io_ = nullptr;
  IoFile file_{};
  u32 version_ = 0;
  bool is_big_endian_ = false;
  u64 file_bytes_ = 0;
  u64 missing_bytes_ = 0;
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
