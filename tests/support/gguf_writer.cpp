#include "tests/support/gguf_writer.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "platform/base/checked.h"

namespace tarn::test {
namespace {

template <class T>
Bytes raw(T value) {
  Bytes out;
  put_bytes(out, &value, sizeof value);
  return out;
}

template <class T>
std::span<const std::byte> elements_of(const std::vector<T>& values) {
  return std::as_bytes(std::span<const T>(values));
}

Bytes directory_of(const GgufImage& image) {
  Bytes out;
  out.reserve(4 * kKiB);
  put_u32(out, image.magic);
  put_u32(out, image.version);
  put_u64(out, image.n_tensors.value_or(image.tensors.size()));
  put_u64(out, image.n_keys.value_or(image.keys.size()));
  for (const GgufKeyEntry& key : image.keys) {
    put_string(out, key.name);
    put_u32(out, key.type);
    put_bytes(out, key.value.data(), key.value.size());
  }
  u64 next = 0;
  for (const GgufTensorEntry& tensor : image.tensors) {
    put_string(out, tensor.name);
    put_u32(out, tensor.n_dims.value_or(static_cast<u32>(tensor.dims.size())));
    for (const u64 dim : tensor.dims) put_u64(out, dim);
    put_u32(out, tensor.type);
    put_u64(out, tensor.offset.value_or(next));
    next = align_up(next + tensor.data.size(), image.alignment);
  }
  return out;
}

}  // namespace

void put_bytes(Bytes& out, const void* data, u64 n_bytes) {
  const auto* bytes = static_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + n_bytes);
}
void put_u32(Bytes& out, u32 value) { put_bytes(out, &value, sizeof value); }
void put_u64(Bytes& out, u64 value) { put_bytes(out, &value, sizeof value); }
void put_string(Bytes& out, std::string_view text) {
  put_u64(out, text.size());
  put_bytes(out, text.data(), text.size());
}

void GgufImage::set_raw(std::string_view name, u32 type, Bytes value) {
  for (GgufKeyEntry& entry : keys) {
    if (entry.name != name) continue;
    entry.type = type;
    entry.value = std::move(value);
    return;
  }
  keys.push_back({std::string(name), type, std::move(value)});
}
void GgufImage::set_u8(std::string_view name, u8 value) { set_raw(name, GgufId::kU8, raw(value)); }
void GgufImage::set_i8(std::string_view name, i8 value) { set_raw(name, GgufId::kI8, raw(value)); }
void GgufImage::set_u16(std::string_view name, u16 value) {
  set_raw(name, GgufId::kU16, raw(value));
}
void GgufImage::set_i16(std::string_view name, i16 value) {
  set_raw(name, GgufId::kI16, raw(value));
}
void GgufImage::set_u32(std::string_view name, u32 value) {
  set_raw(name, GgufId::kU32, raw(value));
}
void GgufImage::set_i32(std::string_view name, i32 value) {
  set_raw(name, GgufId::kI32, raw(value));
}
void GgufImage::set_u64(std::string_view name, u64 value) {
  set_raw(name, GgufId::kU64, raw(value));
}
void GgufImage::set_i64(std::string_view name, i64 value) {
  set_raw(name, GgufId::kI64, raw(value));
}
void GgufImage::set_f32(std::string_view name, f32 value) {
  set_raw(name, GgufId::kF32, raw(value));
}
void GgufImage::set_f64(std::string_view name, f64 value) {
  set_raw(name, GgufId::kF64, raw(value));
}
void GgufImage::set_bool(std::string_view name, bool value) {
  set_raw(name, GgufId::kBool, raw(static_cast<u8>(value ? 1 : 0)));
}
void GgufImage::set_string(std::string_view name, std::string_view value) {
  Bytes out;
  put_string(out, value);
  set_raw(name, GgufId::kString, std::move(out));
}
void GgufImage::set_array(std::string_view name, u32 element, u64 count,
                          std::span<const std::byte> elements) {
  Bytes out;
  put_u32(out, element);
  put_u64(out, count);
  put_bytes(out, elements.data(), elements.size());
  set_raw(name, GgufId::kArray, std::move(out));
}
void GgufImage::set_strings(std::string_view name, const std::vector<std::string>& values) {
  Bytes elements;
  for (const std::string& value : values) put_string(elements, value);
  set_array(name, GgufId::kString, values.size(), elements);
}
void GgufImage::set_f32s(std::string_view name, const std::vector<f32>& values) {
  set_array(name, GgufId::kF32, values.size(), elements_of(values));
}
void GgufImage::set_u32s(std::string_view name, const std::vector<u32>& values) {
  set_array(name, GgufId::kU32, values.size(), elements_of(values));
}
void GgufImage::set_i32s(std::string_view name, const std::vector<i32>& values) {
  set_array(name, GgufId::kI32, values.size(), elements_of(values));
}
void GgufImage::erase_key(std::string_view name) {
  std::erase_if(keys, [&](const GgufKeyEntry& entry) { return entry.name == name; });
}

GgufTensorEntry& GgufImage::add_tensor(std::string_view name, u32 type, std::vector<u64> dims,
                                       Bytes data) {
  tensors.push_back({std::string(name), type, std::move(dims), std::move(data), {}, {}});
  return tensors.back();
}
GgufTensorEntry& GgufImage::add_f32(std::string_view name, std::vector<u64> dims,
                                    const std::vector<f32>& values) {
  Bytes data;
  put_bytes(data, values.data(), values.size() * sizeof(f32));
  return add_tensor(name, 0, std::move(dims), std::move(data));
}
void GgufImage::erase_tensor(std::string_view name) {
  std::erase_if(tensors, [&](const GgufTensorEntry& entry) { return entry.name == name; });
}
GgufKeyEntry& GgufImage::key(std::string_view name) {
  for (GgufKeyEntry& entry : keys) {
    if (entry.name == name) return entry;
  }
  throw std::out_of_range(std::string(name));
}
GgufTensorEntry& GgufImage::tensor(std::string_view name) {
  for (GgufTensorEntry& entry : tensors) {
    if (entry.name == name) return entry;
  }
  throw std::out_of_range(std::string(name));
}

u64 GgufImage::directory_bytes() const { return directory_of(*this).size(); }

Bytes GgufImage::bytes() const {
  Bytes out = directory_of(*this);
  if (!tensors.empty()) out.resize(align_up(out.size(), alignment));
  const u64 data_begin = out.size();
  u64 next = 0;
  for (u64 i = 0; i < tensors.size(); ++i) {
    const Bytes& data = tensors[i].data;
    out.resize(data_begin + next);
    out.insert(out.end(), data.begin(), data.end());
    next = align_up(next + data.size(), alignment);
    if (pad_end || i + 1 < tensors.size()) out.resize(data_begin + next);
  }
  out.insert(out.end(), trailing.begin(), trailing.end());
  return out;
}

namespace {

// Reverses the numbers of a file's directory, one behind the other.
class Reverser {
 public:
  explicit Reverser(Bytes& file) : file_(file) {}

  u64 number(u64 n_bytes) {
    u64 value = 0;
    std::memcpy(&value, &file_.at(at_), n_bytes);
    const auto begin = file_.begin() + static_cast<std::ptrdiff_t>(at_);
    std::reverse(begin, begin + static_cast<std::ptrdiff_t>(n_bytes));
    at_ += n_bytes;
    return value;
  }
  void text() { at_ += number(8); }
  void value(u64 type) {
    constexpr u64 kNumberBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};  // by GgufId
    if (type == GgufId::kString) return text();
    if (type != GgufId::kArray) return static_cast<void>(number(kNumberBytes[type]));
    const u64 element = number(4);
    for (u64 n = number(8); n > 0; --n) value(element);
  }
  void skip(u64 n_bytes) { at_ += n_bytes; }

 private:
  Bytes& file_;
  u64 at_ = 0;
};

}  // namespace

Bytes big_endian(Bytes file) {
  Reverser reverser(file);
  reverser.skip(4);  // magic
  reverser.number(4);
  u64 n_tensors = reverser.number(8);
  for (u64 n = reverser.number(8); n > 0; --n) {
    reverser.text();
    reverser.value(reverser.number(4));
  }
  for (; n_tensors > 0; --n_tensors) {
    reverser.text();
    for (u64 n = reverser.number(4); n > 0; --n) reverser.number(8);
    reverser.number(4);
    reverser.number(8);
  }
  return file;
}

}  // namespace tarn::test
