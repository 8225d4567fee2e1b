// Writes tokens of JSON as JSON again.
#pragma once

#include <rapidjson/stringbuffer.h>
#include <rapidjson/writer.h>

#include <string>

#include "tools/support/json.h"
#include "tools/tarnd/json_tokens.h"

namespace tarn::daemon {

class JsonCopy {
 public:
  void put(const JsonToken& token) {
    const auto n = static_cast<rapidjson::SizeType>(token.text.size());
    switch (token.kind) {
      case JsonToken::Kind::null:
        writer_.Null();
        break;
      case JsonToken::Kind::boolean:
        writer_.Bool(token.flag);
        break;
      case JsonToken::Kind::number:
        token.is_integer ? writer_.Int64(token.integer) : writer_.Double(token.number);
        break;
      case JsonToken::Kind::text:
        writer_.String(token.text.data(), n);
        break;
      case JsonToken::Kind::key:
        writer_.Key(token.text.data(), n);
        break;
      case JsonToken::Kind::begin_object:
        writer_.StartObject();
        break;
      case JsonToken::Kind::end_object:
        writer_.EndObject();
        break;
      case JsonToken::Kind::begin_array:
        writer_.StartArray();
        break;
      case JsonToken::Kind::end_array:
        writer_.EndArray();
        break;
    }
  }
  void text(std::string_view value) { put({.kind = JsonToken::Kind::text, .text = value}); }
  std::string str() const { return {buffer_.GetString(), buffer_.GetSize()}; }

 private:
  rapidjson::StringBuffer buffer_;
  tools::JsonWriter<rapidjson::Writer<rapidjson::StringBuffer>> writer_{buffer_};
};

}  // namespace tarn::daemon
