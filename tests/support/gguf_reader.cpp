#include "tests/support/gguf_reader.h"

#include <cstring>

#include "kernels/quant/dequant.h"
#include "tools/support/input.h"

namespace tarn::test {
namespace {

struct TypeBytes {
  u32 type;
  u64 block_elems;
  u64 block_bytes;
};
// ggml's type ids and block sizes, written down a second time on purpose.
constexpr TypeBytes kTypes[] = {{0, 1, 4},      {1, 1, 2},      {30, 1, 2},     {2, 32, 18},
                                {3, 32, 20},    {6, 32, 22},    {7, 32, 24},    {8, 32, 34},
                                {10, 256, 84},  {11, 256, 110}, {12, 256, 144}, {13, 256, 176},
                                {14, 256, 210}, {20, 32, 18},   {23, 256, 136}, {39, 32, 17}};

u64 tensor_bytes(u32 type, const std::vector<u64>& dims) {
  u64 n = 1;
  for (const u64 dim : dims) n *= dim;
  for (const auto& known : kTypes) {
    if (known.type == type) return n / known.block_elems * known.block_bytes;
  }
  throw std::runtime_error("a tensor of an unknown type");
}

}  // namespace

template <class T>
T GgufReader::take() {
  if (file_.size() - at_ < sizeof(T)) throw std::runtime_error("the file ends early");
  T value;
  std::memcpy(&value, file_.data() + at_, sizeof value);
  at_ += sizeof value;
  return value;
}

std::string GgufReader::take_text() {
  const u64 n = take<u64>();
  if (file_.size() - at_ < n) throw std::runtime_error("the file ends early");
  std::string text(reinterpret_cast<const char*>(file_.data() + at_), n);
  at_ += n;
  return text;
}

f64 GgufReader::take_number(u32 type) {
  switch (type) {
    case 0:
      return take<u8>();
    case 1:
      return take<i8>();
    case 2:
      return take<u16>();
    case 3:
      return take<i16>();
    case 4:
      return take<u32>();
    case 5:
      return take<i32>();
    case 6:
      return f64{take<f32>()};
    case 7:
      return take<u8>();
    case 10:
      return static_cast<f64>(take<u64>());
    case 11:
      return static_cast<f64>(take<i64>());
    case 12:
      return take<f64>();
    default:
      throw std::runtime_error("a value of an unknown type");
  }
}

GgufValue GgufReader::take_value(u32 type) {
  GgufValue value{.type = type};
  if (type == 8) {
    value.text = take_text();
  } else if (type == 9) {
    const u32 element = take<u32>();
    const u64 n = take<u64>();
    for (u64 i = 0; i < n; ++i) {
      if (element == 8) {
        value.texts.push_back(take_text());
      } else {
        value.numbers.push_back(take_number(element));
      }
    }
  } else {
    value.number = take_number(type);
  }
  return value;
}

GgufReader::GgufReader(const std::string& path) {
  const std::string bytes = tools::read_file(path);
  file_.assign(bytes.begin(), bytes.end());
  if (take<u32>() != 0x46554747u) throw std::runtime_error(path + " is no GGUF file");
  version_ = take<u32>();
  const u64 n_tensors = take<u64>();
  const u64 n_keys = take<u64>();
  for (u64 i = 0; i < n_keys; ++i) {
    std::string name = take_text();
    const u32 type = take<u32>();
    if (!keys_.emplace(std::move(name), take_value(type)).second) {
      throw std::runtime_error("a key twice");
    }
  }
  std::vector<u64> offsets;
  std::vector<GgufTensorData*> found;
  for (u64 i = 0; i < n_tensors; ++i) {
    const std::string name = take_text();
    GgufTensorData tensor{};
    const u32 n_dims = take<u32>();
    for (u32 d = 0; d < n_dims; ++d) tensor.dims.push_back(take<u64>());
    tensor.type = take<u32>();
    offsets.push_back(take<u64>());
    const auto [place, fresh] = tensors_.emplace(name, std::move(tensor));
    if (!fresh) throw std::runtime_error("a tensor twice");
    found.push_back(&place->second);
  }
  const u64 data = (at_ + 31) / 32 * 32;
  for (u64 i = 0; i < n_tensors; ++i) {
    const u64 n_bytes = tensor_bytes(found[i]->type, found[i]->dims);
    if (offsets[i] % 32 != 0 || data + offsets[i] + n_bytes > file_.size()) {
      throw std::runtime_error("a tensor out of place");
    }
    found[i]->bytes = std::span(file_).subspan(data + offsets[i], n_bytes);
  }
}

const GgufValue& GgufReader::key(const std::string& key) const {
  const auto found = keys_.find(key);
  if (found == keys_.end()) throw std::runtime_error("no key " + key);
  return found->second;
}

f64 GgufReader::number_or(const std::string& key, f64 fallback) const {
  return has_key(key) ? number(key) : fallback;
}

const GgufTensorData& GgufReader::tensor(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) throw std::runtime_error("no tensor " + name);
  return found->second;
}

std::vector<f32> GgufReader::f32s(const std::string& name) const {
  const GgufTensorData& data = tensor(name);
  u64 n = 1;
  for (const u64 dim : data.dims) n *= dim;
  std::vector<f32> values(n);
  const auto type = static_cast<kernels::TensorType>(data.type);
  const u64 row = data.dims[0];
  const u64 row_bytes = data.bytes.size() / (n / row);
  for (u64 i = 0; i < n / row; ++i) {
    kernels::dequantize_row(type, data.bytes.data() + i * row_bytes, row, values.data() + i * row);
  }
  return values;
}

}  // namespace tarn::test
