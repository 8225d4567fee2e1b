// tools/support/json.h
//
// A JSON writer for our programs' output: one object, keys in the order in which they are written.
// Text that is not valid UTF-8 must be written as bytes().
#pragma once

#include <rapidjson/prettywriter.h>
#include <rapidjson/stringbuffer.h>

#include <cmath>
#include <string>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::tools {

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
  // null where the value is not a number: JSON has no other word for it.
  Json& real(f64 value) {
    if (std::isfinite(value)) {
      writer_.Double(value);
    } else {
      writer_.Null();
    }
    return *this;
  }
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
  rapidjson::PrettyWriter<rapidjson::StringBuffer> writer_{buffer_};
};

// Prints the object and a line break on standard output.
void print_json(const Json& json);

}  // namespace tarn::tools
