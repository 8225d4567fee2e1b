#include "tools/tarnd/json_tokens.h"

#include <rapidjson/error/en.h>
#include <rapidjson/reader.h>

#include "runtime/text/unicode.h"

namespace tarn::daemon {
namespace {

using Kind = JsonToken::Kind;

// RapidJSON's events as tokens.
class Events : public rapidjson::BaseReaderHandler<rapidjson::UTF8<>, Events> {
 public:
  explicit Events(JsonTokens& to) : to_(to) {}
  bool is_too_deep() const { return is_too_deep_; }
  bool is_no_utf8() const { return is_no_utf8_; }

  bool Null() { return to_.take({.kind = Kind::null}, depth_); }
  bool Bool(bool value) { return to_.take({.kind = Kind::boolean, .flag = value}, depth_); }
  bool Int(int value) { return Int64(value); }
  bool Uint(unsigned value) { return Int64(i64{value}); }
  bool Int64(i64 value) {
    return to_.take({.kind = Kind::number,
                     .is_integer = true,
                     .integer = value,
                     .number = static_cast<f64>(value)},
                    depth_);
  }
  bool Uint64(u64 value) {
    if (value <= static_cast<u64>(INT64_MAX)) return Int64(static_cast<i64>(value));
    return Double(static_cast<f64>(value));
  }
  bool Double(f64 value) { return to_.take({.kind = Kind::number, .number = value}, depth_); }
  bool String(const char* bytes, rapidjson::SizeType n, bool) {
    return text(Kind::text, {bytes, n});
  }
  bool Key(const char* bytes, rapidjson::SizeType n, bool) { return text(Kind::key, {bytes, n}); }
  bool StartObject() { return begin(Kind::begin_object); }
  bool StartArray() { return begin(Kind::begin_array); }
  bool EndObject(rapidjson::SizeType) { return end(Kind::end_object); }
  bool EndArray(rapidjson::SizeType) { return end(Kind::end_array); }

 private:
  // RapidJSON takes half a surrogate pair for a character, and its own check of UTF-8 reads past
  // the end of a text that ends within a character.
  bool text(Kind kind, std::string_view text) {
    is_no_utf8_ = !text::is_utf8(text);
    return !is_no_utf8_ && to_.take({.kind = kind, .text = text}, depth_);
  }
  bool begin(Kind kind) {
    is_too_deep_ = depth_ >= kJsonDepthMax;
    return !is_too_deep_ && to_.take({.kind = kind}, depth_++);
  }
  bool end(Kind kind) { return to_.take({.kind = kind}, --depth_); }

  JsonTokens& to_;
  u32 depth_ = 0;
  bool is_too_deep_ = false;
  bool is_no_utf8_ = false;
};

}  // namespace

std::string read_json(std::string& text, JsonTokens& to) {
  // The reader takes a zero byte for the end.
  if (const size_t zero = text.find('\0'); zero != std::string::npos) {
    return "a zero byte at byte " + std::to_string(zero);
  }
  // Not kParseFullPrecisionFlag: RapidJSON 1.1.0 shifts 0e249 by 64 bits. 15 digits are exact
  // without.
  constexpr unsigned kFlags = rapidjson::kParseInsituFlag | rapidjson::kParseIterativeFlag;
  Events events(to);
  rapidjson::Reader reader;
  rapidjson::InsituStringStream stream(text.data());
  const rapidjson::ParseResult result = reader.Parse<kFlags>(stream, events);
  if (!result.IsError()) return "";
  if (events.is_too_deep()) return "it is nested more than 64 deep";
  if (events.is_no_utf8()) return "a text is not UTF-8, or has half of a surrogate pair";
  if (result.Code() == rapidjson::kParseErrorTermination) return kJsonStopped;
  return std::string(rapidjson::GetParseError_En(result.Code())) + " (byte " +
         std::to_string(result.Offset()) + ")";
}

}  // namespace tarn::daemon
