// The look-ups of GgufFile and its typed accessors: a key has the requested type, or the call is an
// error (class G5).
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "platform/base/assert.h"
#include "runtime/model/file_cursor.h"
#include "runtime/model/gguf.h"
#include "runtime/model/gguf_limits.h"

namespace tarn::model {
namespace {

// An integer of the file, any type: no signed or unsigned type of ours holds all values.
struct Integer {
  bool negative = false;
  u64 bits = 0;  // two's complement when negative
};

template <class T>
Integer load_as(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof value);
  return {.negative = value < 0, .bits = static_cast<u64>(static_cast<i64>(value))};
}

bool is_integer(GgufType type) {
  const bool is_other = type == GgufType::boolean || type == GgufType::f32 || type == GgufType::f64;
  return !is_other && gguf_number_bytes(type) > 0;
}

Integer load_integer(GgufType type, const std::byte* bytes) {
  switch (type) {
    case GgufType::i8:
      return load_as<i8>(bytes);
    case GgufType::i16:
      return load_as<i16>(bytes);
    case GgufType::i32:
      return load_as<i32>(bytes);
    case GgufType::i64:
      return load_as<i64>(bytes);
    default:
      break;
  }
  Integer out;
  std::memcpy(&out.bits, bytes, gguf_number_bytes(type));
  return out;
}

f64 load_float(GgufType type, const std::byte* bytes) {
  if (type == GgufType::f64) {
    f64 value;
    std::memcpy(&value, bytes, sizeof value);
    return value;
  }
  f32 value;
  std::memcpy(&value, bytes, sizeof value);
  return static_cast<f64>(value);
}

Error bad_value(const char* hint, std::string_view key, Figure a = {}) {
  return {.status = Status::invalid_model, .hint = hint, .detail = Detail(key), .figures = {{a}}};
}

const std::byte* bits_of(const GgufKey& key) {
  return reinterpret_cast<const std::byte*>(&key.bits);
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
                     .end = key.offset + key.bytes});
}

Result<std::optional<u64>> GgufFile::get_u64(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<u64>();
  if (!is_integer(key->type)) {
    return fail(bad_value("the key has the wrong type; it must be an integer", name));
  }
  const Integer value = load_integer(key->type, bits_of(*key));
  if (value.negative) return fail(bad_value("the key's value is negative", name));
  return std::optional<u64>(value.bits);
}

Result<std::optional<f64>> GgufFile::get_f64(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<f64>();
  if (key->type != GgufType::f32 && key->type != GgufType::f64) {
    return fail(bad_value("the key has the wrong type; it must be a floating-point number", name));
  }
  const f64 value = load_float(key->type, bits_of(*key));
  if (!std::isfinite(value)) return fail(bad_value("the key's value is not a finite number", name));
  return std::optional<f64>(value);
}

Result<std::optional<bool>> GgufFile::get_bool(std::string_view name) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<bool>();
  if (key->type != GgufType::boolean) {
    return fail(bad_value("the key has the wrong type; it must be a boolean", name));
  }
  return std::optional<bool>(key->bits != 0);
}

Result<std::optional<std::string_view>> GgufFile::get_string(std::string_view name, Bump& memory,
                                                             u64 bytes_max) const {
  const GgufKey* key = find_key(name);
  if (key == nullptr) return std::optional<std::string_view>();
  if (key->type != GgufType::string) {
    return fail(bad_value("the key has the wrong type; it must be a text", name));
  }
  if (key->bytes > bytes_max) {
    return fail(bad_value("the key's text is too long", name, {"bytes", key->bytes}));
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
    return fail(bad_value("the key's text contains a zero byte", name));
  }
  return std::optional<std::string_view>(view);
}

Result<void> GgufFile::each_string(const GgufKey& key, StringVisitor visit, void* context) const {
  if (key.type != GgufType::array || key.element != GgufType::string) {
    return fail(bad_value("the key has the wrong type; it must be an array of texts", key.name));
  }
  FileCursor cursor = value_cursor(key);
  for (u64 i = 0; i < key.count; ++i) {
    // The lengths were checked with the directory, but the file may have changed since.
    TARN_TRY(const u64 n_bytes, cursor.number<u64>());
    if (n_bytes > GgufLimits::kArrayStringBytesMax) {
      return fail(bad_value("the file changed while it was in use", key.name, {"index", i}));
    }
    TARN_TRY(const std::byte* bytes, cursor.take(n_bytes));
    TARN_CHECK(visit(context, i, {reinterpret_cast<const char*>(bytes), n_bytes}));
  }
  return {};
}

Result<void> GgufFile::read_f32(const GgufKey& key, std::span<f32> out) const {
  if (key.type != GgufType::array ||
      (key.element != GgufType::f32 && key.element != GgufType::f64)) {
    return fail(bad_value(
        "the key has the wrong type; it must be an array of floating-point numbers", key.name));
  }
  TARN_ASSERT(out.size() == key.count);
  const u64 element_bytes = key.element == GgufType::f64 ? 8 : 4;
  const FileCursor cursor = value_cursor(key);
  return each_block(
      cursor, key.count, element_bytes,
      [&](const std::byte* bytes, u64 begin, u64 n) -> Result<void> {
        for (u64 i = 0; i < n; ++i) {
          const f64 value = load_float(key.element, bytes + i * element_bytes);
          if (std::isfinite(value) && std::fabs(value) > f64{std::numeric_limits<f32>::max()}) {
            return fail(bad_value("a number of the array does not fit f32", key.name,
                                  {"index", begin + i}));
          }
          out[begin + i] = static_cast<f32>(value);
        }
        return {};
      });
}

Result<void> GgufFile::read_i32(const GgufKey& key, std::span<i32> out) const {
  if (key.type != GgufType::array || !is_integer(key.element)) {
    return fail(bad_value("the key has the wrong type; it must be an array of integers", key.name));
  }
  TARN_ASSERT(out.size() == key.count);
  const FileCursor cursor = value_cursor(key);
  const u64 element_bytes = gguf_number_bytes(key.element);
  return each_block(cursor, key.count, element_bytes,
                    [&](const std::byte* bytes, u64 begin, u64 n) -> Result<void> {
                      for (u64 i = 0; i < n; ++i) {
                        const Integer value = load_integer(key.element, bytes + i * element_bytes);
                        const i64 number = static_cast<i64>(value.bits);
                        const bool fits = value.negative
                                              ? number >= std::numeric_limits<i32>::min()
                                              : value.bits <= u64{std::numeric_limits<i32>::max()};
                        if (!fits) {
                          return fail(bad_value("a number of the array does not fit i32", key.name,
                                                {"index", begin + i}));
                        }
                        out[begin + i] = static_cast<i32>(number);
                      }
                      return {};
                    });
}

}  // namespace tarn::model
