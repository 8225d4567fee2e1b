// Reads a whole GGUF file into memory, for tests: a plain oracle for runtime/model/gguf. Only for
// files that we wrote, not for hostile ones.
#pragma once

#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "platform/base/types.h"

namespace tarn::test {

struct GgufValue {
  u32 type = 0;
  f64 number = 0;                    // any number, or a boolean
  std::string text{};                // a string
  std::vector<std::string> texts{};  // an array of strings
  std::vector<f64> numbers{};        // an array of numbers
};

struct GgufTensorData {
  std::vector<u64> dims;
  u32 type = 0;
  std::span<const u8> bytes;  // of the reader's copy of the file
};

class GgufReader {
 public:
  explicit GgufReader(const std::string& path);
  GgufReader(const GgufReader&) = delete;
  GgufReader& operator=(const GgufReader&) = delete;

  u32 version() const { return version_; }
  u64 file_bytes() const { return file_.size(); }
  bool has_key(const std::string& key) const { return keys_.count(key) != 0; }
  const GgufValue& key(const std::string& key) const;  // throws if there is none
  f64 number(const std::string& key) const { return this->key(key).number; }
  f64 number_or(const std::string& key, f64 fallback) const;
  bool has_tensor(const std::string& name) const { return tensors_.count(name) != 0; }
  const GgufTensorData& tensor(const std::string& name) const;
  const std::map<std::string, GgufTensorData>& tensors() const { return tensors_; }
  // The elements of a tensor of any type of kernels/quant/tensor_type.h.
  std::vector<f32> f32s(const std::string& name) const;

 private:
  template <class T>
  T take();
  std::string take_text();
  f64 take_number(u32 type);
  GgufValue take_value(u32 type);

  std::vector<u8> file_;
  u64 at_ = 0;
  u32 version_ = 0;
  std::map<std::string, GgufValue> keys_;
  std::map<std::string, GgufTensorData> tensors_;
};

}  // namespace tarn::test
