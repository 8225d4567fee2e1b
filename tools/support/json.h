// tools/support/json.h
//
// A JSON writer for our programs' output: one object, keys in the order in which they are written.
// Text that is not valid UTF-8 must be written as bytes().
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

// One of RapidJSON's writers, whose numbers are the shortest text that reads back (its own are not
// always); null where a value is not a number: JSON has no other word for it.
template <class Writer>
class JsonWriter : public Writer {
 public:
  using Writer::Writer;
  bool Double(f64 value) { return real(value); }
  bool Float(f32 value) { return real(value); }

 private:
  // With an exponent where a person would write one, and else with a decimal: a whole number is a
  // real, too.
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

// The number of seconds that is nearest, which multiplying by 1e-9 rounds twice to miss.
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
  // A list of byte values.
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
