// Builds small GGUF images in memory, valid and invalid ones. Every part of the file is a public
// field that a test can change; unchanged fields follow the format.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "platform/base/types.h"

namespace tarn::test {

using Bytes = std::vector<std::byte>;

// Little-endian pieces of a file.
void put_bytes(Bytes& out, const void* data, u64 n_bytes);
void put_u32(Bytes& out, u32 value);
void put_u64(Bytes& out, u64 value);
void put_string(Bytes& out, std::string_view text);  // length and bytes, as in GGUF

// GGUF's value type ids, as plain numbers, because hostile files have others too.
struct GgufId {
  static constexpr u32 kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6,
                       kBool = 7, kString = 8, kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;
};

struct GgufKeyEntry {
  std::string name;
  u32 type = 0;
  Bytes value;  // as in the file, after the type
};

struct GgufTensorEntry {
  std::string name;
  u32 type = 0;
  std::vector<u64> dims;  // dims[0] is the row length
  Bytes data;
  std::optional<u32> n_dims;  // instead of dims.size()
  std::optional<u64> offset;  // instead of the next free one; relative to the data section
};

struct GgufImage {
  u32 magic = 0x46554747;  // "GGUF"
  u32 version = 3;
  std::optional<u64> n_tensors;  // instead of the real counts
  std::optional<u64> n_keys;
  u64 alignment = 32;   // of the data; a file with another one needs the key general.alignment
  bool pad_end = true;  // the last tensor is padded, as writers do
  std::vector<GgufKeyEntry> keys;
  std::vector<GgufTensorEntry> tensors;
  Bytes trailing;  // after everything

  // Sets or replaces a key, so a test can start from a valid file.
  void set_raw(std::string_view name, u32 type, Bytes value);
  void set_u8(std::string_view name, u8 value);
  void set_i8(std::string_view name, i8 value);
  void set_u16(std::string_view name, u16 value);
  void set_i16(std::string_view name, i16 value);
  void set_u32(std::string_view name, u32 value);
  void set_i32(std::string_view name, i32 value);
  void set_u64(std::string_view name, u64 value);
  void set_i64(std::string_view name, i64 value);
  void set_f32(std::string_view name, f32 value);
  void set_f64(std::string_view name, f64 value);
  void set_bool(std::string_view name, bool value);
  void set_string(std::string_view name, std::string_view value);
  void set_strings(std::string_view name, const std::vector<std::string>& values);
  void set_array(std::string_view name, u32 element, u64 count,
                 std::span<const std::byte> elements);
  void set_f32s(std::string_view name, const std::vector<f32>& values);
  void set_u32s(std::string_view name, const std::vector<u32>& values);
  void set_i32s(std::string_view name, const std::vector<i32>& values);
  void erase_key(std::string_view name);

  GgufTensorEntry& add_tensor(std::string_view name, u32 type, std::vector<u64> dims, Bytes data);
  GgufTensorEntry& add_f32(std::string_view name, std::vector<u64> dims,
                           const std::vector<f32>& values);
  void erase_tensor(std::string_view name);
  GgufKeyEntry& key(std::string_view name);        // must exist
  GgufTensorEntry& tensor(std::string_view name);  // must exist

  u64 directory_bytes() const;  // up to the end of the tensor table
  Bytes bytes() const;          // the file
};

// Returns a valid file as big-endian machines have it; the tensors' data stays as it is.
Bytes big_endian(Bytes file);

}  // namespace tarn::test
