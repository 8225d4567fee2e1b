// A JSON writer for our programs' output: one object with keys in the order of the calls. Text that
// is not valid UTF-8 must be written by bytes().
#pragma once

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::tools {

// A RapidJSON writer with the shortest numbers that read back exactly (RapidJSON's are not always);
// a value that is not a number becomes null.
template <class Writer>
class JsonWriter : public Writer {
 public:
  using Writer::Writer;
  bool Double(f64 value) { return real(value); }
  bool Float(f32 value) { return real(value); }

 private:
  // Writes an exponent where a person would, else a decimal point, also for integers: the value is
  // a real.
  template <class Real>
  bool real(Real value) {
    if (!std::isfinite(value)) return Writer::Null();
    const Real size = std::abs(value);
    const Real whole_max = Real(u64{1} << std::numeric_limits<Real>::digits);
    const bool is_plain = size == 0 || (size >= Real(1e-4) && size < whole_max);
    const auto format = is_plain ? std::chars_format::fixed : std::chars_format::scientific;
    char text[32];
    char* end = std::to_chars(text, text + sizeof text, value, format).ptr;
    if (is_plain && std::find(text, end, '.') == end) end = std::copy_n(".0", 2, end);
    return Writer::RawValue(text, static_cast<size_t>(end - text), rapidjson::kNumberType);
  }
};

// The nearest number of seconds; multiplying by 1e-9 would round twice.
inline f64 seconds_of(u64 ns) { return static_cast<f64>(ns) / 1e9; }

class Json {
 public:
  Json() { writer_.SetIndent(' ', 2); }
  Json& begin_object() { return writer_.StartObject(), *this; }
  Json& end_object() { return writer_.EndObject(), *this; }
  Json& begin_array() { return writer_.StartArray(), *this; }
  Json& end_array() { return writer_.EndArray(), *this; }
  Json& key(std::string_view name) {
    writer_.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
    return *this;
  }
  Json& text(std::string_view value) {
    writer_.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
    return *this;
  }
  Json& number(u64 value) { return writer_.Uint64(value), *this; }
  Json& real(f64 value) { return writer_.Double(value), *this; }
  Json& real(f32 value) { return writer_.Float(value), *this; }
  Json& boolean(bool value) { return writer_.Bool(value), *this; }
  Json& null() { return writer_.Null(), *this; }
  // Writes a list of byte values.
  Json& bytes(std::string_view value) {
    begin_array();
    for (const char c : value) number(static_cast<u8>(c));
    return end_array();
  }

  std::string_view str() const { return {buffer_.GetString(), buffer_.GetSize()}; }

 private:
  rapidjson::StringBuffer buffer_;
  JsonWriter<rapidjson::PrettyWriter<rapidjson::StringBuffer>> writer_{buffer_};
};

// Prints the object and a line break on standard output.
void print_json(const Json& json);

}  // namespace tarn::tools
