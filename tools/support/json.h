// JSON writers for our programs' output, with keys in the order of the calls: Json with line
// breaks, JsonLine without. Text that is not valid UTF-8 must be written by bytes().
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

template <class Writer>
class JsonText {
 public:
  JsonText& begin_object() { return writer_.StartObject(), *this; }
  JsonText& end_object() { return writer_.EndObject(), *this; }
  JsonText& begin_array() { return writer_.StartArray(), *this; }
  JsonText& end_array() { return writer_.EndArray(), *this; }
  JsonText& key(std::string_view name) {
    writer_.Key(name.data(), static_cast<rapidjson::SizeType>(name.size()));
    return *this;
  }
  JsonText& text(std::string_view value) {
    writer_.String(value.data(), static_cast<rapidjson::SizeType>(value.size()));
    return *this;
  }
  JsonText& number(u64 value) { return writer_.Uint64(value), *this; }
  JsonText& integer(i64 value) { return writer_.Int64(value), *this; }
  JsonText& real(f64 value) { return writer_.Double(value), *this; }
  JsonText& real(f32 value) { return writer_.Float(value), *this; }
  JsonText& boolean(bool value) { return writer_.Bool(value), *this; }
  JsonText& null() { return writer_.Null(), *this; }
  // Writes a list of byte values.
  JsonText& bytes(std::string_view value) {
    begin_array();
    for (const char c : value) number(static_cast<u8>(c));
    return end_array();
  }

  std::string_view str() const { return {buffer_.GetString(), buffer_.GetSize()}; }

 protected:
  rapidjson::StringBuffer buffer_;
  JsonWriter<Writer> writer_{buffer_};
};

class Json : public JsonText<rapidjson::PrettyWriter<rapidjson::StringBuffer>> {
 public:
  Json() { writer_.SetIndent(' ', 2); }
};
using JsonLine = JsonText<rapidjson::Writer<rapidjson::StringBuffer>>;

// Prints JSON on standard output: what a terminal must not get (shown_text.h), which stands in
// strings alone, as "\u009b".
void print_json_text(std::string_view json);
// The object and a line break.
void print_json(const Json& json);

}  // namespace tarn::tools
