// The types of GGUF, the look-ups of GgufFile and its typed accessors: a key has the requested
// type, or the call is an error (class G5).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "kernels/quant/tensor_type.h"
#include "platform/base/assert.h"
#include "runtime/model/file_cursor.h"
#include "runtime/model/gguf.h"
#include "runtime/model/model_errors.h"

namespace tarn::model {
namespace {

// Part of the file format (ggml.h, enum ggml_type, and the block structs of ggml-common.h): the
// types beside those of kernels/quant, which this build computes with. 31 to 33 and 36 to 38 are
// withdrawn: blocks of q4_0 and iq4_nl, interleaved. Other missing numbers were withdrawn before
// GGUF.
constexpr GgufTensorTypeInfo kOtherTypes[] = {
    {9, "q8_1", 32, 36},        {15, "q8_k", 256, 292},     {16, "iq2_xxs", 256, 66},
    {17, "iq2_xs", 256, 74},    {18, "iq3_xxs", 256, 98},   {19, "iq1_s", 256, 50},
    {21, "iq3_s", 256, 110},    {22, "iq2_s", 256, 82},     {24, "i8", 1, 1},
    {25, "i16", 1, 2},          {26, "i32", 1, 4},          {27, "i64", 1, 8},
    {28, "f64", 1, 8},          {29, "iq1_m", 256, 56},     {31, "q4_0_4_4", 32, 18},
    {32, "q4_0_4_8", 32, 18},   {33, "q4_0_8_8", 32, 18},   {34, "tq1_0", 256, 54},
    {35, "tq2_0", 256, 66},     {36, "iq4_nl_4_4", 32, 18}, {37, "iq4_nl_4_8", 32, 18},
    {38, "iq4_nl_8_8", 32, 18}, {40, "nvfp4", 64, 36},      {41, "q1_0", 128, 18},
    {42, "q2_0", 64, 18},
};

constexpr u64 kComputed = std::size(kernels::kTypeTraits), kOthers = std::size(kOtherTypes);
constexpr auto kTypes = [] {
  std::array<GgufTensorTypeInfo, kComputed + kOthers> all{};
  for (u64 i = 0; i < kComputed; ++i) {
    const kernels::TypeTraits& traits = kernels::kTypeTraits[i];
    all[i] = {static_cast<u32>(traits.type), traits.name, traits.block_elems, traits.block_bytes};
  }
  for (u64 i = 0; i < kOthers; ++i) all[kComputed + i] = kOtherTypes[i];
  return all;
}();

// An integer of the file, any type: no signed or unsigned type of ours holds all values.
struct Integer {
  bool negative = false;
  u64 bits = 0;  // two's complement when negative
};

bool is_integer(GgufType type) {
  const bool is_other = type == GgufType::boolean || type == GgufType::f32 || type == GgufType::f64;
  return !is_other && gguf_number_bytes(type) > 0;
}

Integer to_integer(GgufType type, u64 bits) {
  const u64 n_bytes = gguf_number_bytes(type);
  const bool is_signed = type == GgufType::i8 || type == GgufType::i16 || type == GgufType::i32 ||
                         type == GgufType::i64;
  Integer out{.bits = bits};
  out.negative = is_signed && (out.bits >> (8 * n_bytes - 1)) != 0;
  if (out.negative && n_bytes < 8) out.bits |= ~u64{0} << 8 * n_bytes;
  return out;
}

f64 to_float(GgufType type, u64 bits) {
  if (type == GgufType::f64) return std::bit_cast<f64>(bits);
  return static_cast<f64>(std::bit_cast<f32>(static_cast<u32>(bits)));
}

// A number of any type but a boolean.
f64 to_number(GgufType type, u64 bits) {
  if (!is_integer(type)) return to_float(type, bits);
  const Integer value = to_integer(type, bits);
  return value.negative ? static_cast<f64>(static_cast<i64>(value.bits))
                        : static_cast<f64>(value.bits);
}

// Reads an array's elements in blocks through the window, and calls load(block, n) for n of them.
template <class Load>
Result<void> each_block(FileCursor cursor, u64 count, u64 element_bytes, Load&& load) {
  const u64 n_block_max = cursor.take_bytes_max() / element_bytes;
  for (u64 done = 0; done < count;) {
    const u64 n = std::min(count - done, n_block_max);
    TARN_TRY(const std::byte* bytes, cursor.take(n * element_bytes));
    TARN_CHECK(load(bytes, done, n));
    done += n;
  }
  return {};
}

template <class Entry>
const Entry* find_by_name(std::span<const Entry> entries, std::span<const u32> by_name,
                          std::string_view name) {
  const auto found =
      std::lower_bound(by_name.begin(), by_name.end(), name,
                       [&](u32 idx, std::string_view n) { return entries[idx].name < n; });
  return found != by_name.end() && entries[*found].name == name ? &entries[*found] : nullptr;
}

}  // namespace

const GgufTensorTypeInfo* gguf_tensor_type(u32 id) {
  for (const GgufTensorTypeInfo& info : kTypes) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

const char* gguf_tensor_type_name(u32 id) {
  const GgufTensorTypeInfo* info = gguf_tensor_type(id);
  return info != nullptr ? info->name : "unknown";
}

u64 gguf_number_bytes(GgufType type) {
  constexpr u8 kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return kBytes[static_cast<u64>(type)];
}

const GgufKey* GgufFile::find_key(std::string_view name) const {
  return find_by_name(keys_, keys_by_name_, name);
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const {
  return find_by_name(tensors_, tensors_by_name_, name);
}

FileCursor GgufFile::value_cursor(const GgufKey& key) const {
  return FileCursor({.io = io_,
                     .file = file_,
                     .window = window_,
                     .begin = key.offset,
                     .end = key.offset + key.bytes,
                     .reverses = is_big_endian_});
}

u64 GgufFile::number_bits(const std::byte* bytes, GgufType type) const {
  const u64 n_bytes = gguf_number_bytes(type);
  u64 bits = 0;
  std::memcpy(&bits, bytes, n_bytes);
  return is_big_endian_ ? reversed_bytes(bits, n_bytes) : bits;
}

Result<const std::byte*> GgufFile::read_data(u64 offset, u64 n_bytes) const {
  FileCursor cursor(
      {.io = io_, .file = file_, .window = window_, .begin = offset, .end = offset + n_bytes});
  return cursor.take(n_bytes);
}

Result<std::optional<u64>> GgufFile::get_u64(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<u64>();
  if (!is_integer(key->type)) {
    return invalid("the key has the wrong type; it must be an integer", name);
  }
  const Integer value = to_integer(key->type, key->bits);
  if (value.negative) return invalid("the key's value is negative", name);
  return std::optional<u64>(value.bits);
}

Result<std::optional<f64>> GgufFile::get_f64(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<f64>();
  if (key->type != GgufType::f32 && key->type != GgufType::f64) {
    return invalid("the key has the wrong type; it must be a floating-point number", name);
  }
  const f64 value = to_float(key->type, key->bits);
  if (!std::isfinite(value)) return invalid("the key's value is not a finite number", name);
  return std::optional<f64>(value);
}

Result<std::optional<bool>> GgufFile::get_bool(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<bool>();
  if (key->type != GgufType::boolean) {
    return invalid("the key has the wrong type; it must be a boolean", name);
  }
  if (key->bits > 1) {
    return invalid("a boolean that is neither 0 nor 1", name, {"value", key->bits});
  }
  return std::optional<bool>(key->bits != 0);
}

Result<std::optional<std::string_view>> GgufFile::get_string(std::string_view name, Bump& memory,
                                                             u64 bytes_max) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<std::string_view>();
  if (key->type != GgufType::string) {
    return invalid("the key has the wrong type; it must be a text", name);
  }
  if (key->bytes > bytes_max) {
    return invalid("the key's text is too long", name, {"bytes", key->bytes});
  }
  const auto text = memory.alloc<char>(key->bytes + 1);
  if (!text) {
    return fail({.status = Status::over_budget,
                 .hint = "the memory for the model's directory is too small for a text in it",
                 .detail = Detail(name),
                 .figures = {{{"bytes", key->bytes}, {"bytes_free", memory.free_bytes()}}}});
  }
  const FileCursor cursor = value_cursor(*key);
  TARN_CHECK(each_block(cursor, key->bytes, 1, [&](const std::byte* bytes, u64 begin, u64 n) {
    std::memcpy(text->data() + begin, bytes, n);
    return Result<void>();
  }));
  (*text)[key->bytes] = '\0';
  const std::string_view view(text->data(), key->bytes);
  if (view.find('\0') != std::string_view::npos) {
    return invalid("the key's text contains a zero byte", name);
  }
  return std::optional<std::string_view>(view);
}

Result<void> GgufFile::each_string(const GgufKey& key, StringVisitor visit, void* context) const {
  if (key.type != GgufType::array || key.element != GgufType::string) {
    return invalid("the key has the wrong type; it must be an array of texts", key.name);
  }
  FileCursor cursor = value_cursor(key);
  for (u64 i = 0; i < key.count; ++i) {
    TARN_TRY(const u64 n_bytes, cursor.number<u64>());
    if (n_bytes > GgufLimits::kArrayStringBytesMax) {
      return invalid("a text in the array is longer than any real token", key.name, {"index", i},
                     {"bytes", n_bytes});
    }
    TARN_TRY(const std::byte* bytes, cursor.take(n_bytes));
    TARN_CHECK(visit(context, i, {reinterpret_cast<const char*>(bytes), n_bytes}));
  }
  return {};
}

Result<void> GgufFile::read_f32(const GgufKey& key, std::span<f32> out) const {
  const u64 element_bytes = gguf_number_bytes(key.element);
  const bool are_numbers = element_bytes > 0 && key.element != GgufType::boolean;
  if (key.type != GgufType::array || !are_numbers) {
    return invalid("the key has the wrong type; it must be an array of numbers", key.name);
  }
  TARN_ASSERT(out.size() == key.count);
  const FileCursor cursor = value_cursor(key);
  return each_block(
      cursor, key.count, element_bytes,
      [&](const std::byte* bytes, u64 begin, u64 n) -> Result<void> {
        for (u64 i = 0; i < n; ++i) {
          const f64 value =
              to_number(key.element, number_bits(bytes + i * element_bytes, key.element));
          if (std::isfinite(value) && std::fabs(value) > f64{std::numeric_limits<f32>::max()}) {
            return invalid("a number of the array does not fit f32", key.name,
                           {"index", begin + i});
          }
          out[begin + i] = static_cast<f32>(value);
        }
        return {};
      });
}

Result<void> GgufFile::read_i32(const GgufKey& key, std::span<i32> out) const {
  if (key.type != GgufType::array || !is_integer(key.element)) {
    return invalid("the key has the wrong type; it must be an array of integers", key.name);
  }
  TARN_ASSERT(out.size() == key.count);
  const FileCursor cursor = value_cursor(key);
  const u64 element_bytes = gguf_number_bytes(key.element);
  return each_block(cursor, key.count, element_bytes,
                    [&](const std::byte* bytes, u64 begin, u64 n) -> Result<void> {
                      for (u64 i = 0; i < n; ++i) {
                        const Integer value = to_integer(
                            key.element, number_bits(bytes + i * element_bytes, key.element));
                        const i64 number = static_cast<i64>(value.bits);
                        const bool fits = value.negative
                                              ? number >= std::numeric_limits<i32>::min()
                                              : value.bits <= u64{std::numeric_limits<i32>::max()};
                        if (!fits) {
                          return invalid("a number of the array does not fit i32", key.name,
                                         {"index", begin + i});
                        }
                        out[begin + i] = static_cast<i32>(number);
                      }
                      return {};
                    });
}

}  // namespace tarn::model
