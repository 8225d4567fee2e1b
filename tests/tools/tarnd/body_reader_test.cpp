// Goal    A body that is no JSON is refused where it ends, whatever it is; messages become what the
//         engine's templates take.
// Method  Tables of bodies, among them every prefix of a right one.
#include "tools/tarnd/body_reader.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::daemon::body_reader_test {
namespace {

std::optional<HttpError> read(std::string text, Body* body, Endpoint endpoint = kChat) {
  return read_body(endpoint, text, *body);
}

std::string messages_of(const std::string& messages) {
  Body body;
  const auto error = read(R"({"messages":)" + messages + "}", &body);
  return error ? "refused: " + error->message : body.messages_json;
}

std::string nested(u32 depth) { return std::string(depth, '[') + std::string(depth, ']'); }

TEST_CASE("what is no JSON object is refused") {
  // Cut within a character, too: a sanitizer sees who reads on behind it.
  const std::string right =
      "{\"messages\":[{\"role\":\"user\",\"content\":\"a\\u00e4\\n\xf0\x9f\x98\x80\"}],\"seed\":"
      "12}";
  Body body;
  REQUIRE_FALSE(read(right, &body).has_value());
  for (size_t n = 0; n < right.size(); ++n) {
    CAPTURE(n);
    const auto error = read(right.substr(0, n), &body);
    REQUIRE(error.has_value());
    CHECK(error->status == 400);
  }
  const std::string zero("{\"messages\":[{\"role\":\"user\"}]}\0{}", 33);
  const std::string kBad[] = {
      "[]",
      "1",
      "null",
      "\"x\"",
      right + "x",
      right + "{}",
      zero,
      "{\"a\":NaN}",
      "{'a':1}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\xff\"}]}",          // no UTF-8
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\xed\xa0\x80\"}]}",  // half a pair
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}",
      "{\"messages\":[{\"role\":\"user\",\"content\":\"\\udc00\"}]}",
      "{\"\\udc00\":1,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
      "{\"messages\":[{\"role\":\"user\"}],\"a\":" + nested(64) + "}"};
  for (const std::string& text : kBad) {
    CAPTURE(text);
    const auto error = read(text, &body);
    REQUIRE(error.has_value());
    CHECK(error->status == 400);
  }
  CHECK_FALSE(read("{\"messages\":[{\"role\":\"assistant\"}],\"a\":" + nested(63) + "}", &body));
}

struct MessagesCase {
  const char* name;
  const char* messages;
  const char* written;
};
constexpr MessagesCase kMessages[] = {
    {"plain", R"([{"role":"user","content":"a"}])", R"([{"role":"user","content":"a"}])"},
    {"parts",
     R"([{"role":"user","content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]}])",
     R"([{"role":"user","content":"a\nb"}])"},
    {"a refusal beside a text",
     R"([{"role":"user","content":[{"refusal":"b","text":"a","type":"text"}]}])",
     R"([{"role":"user","content":"a"}])"},
    {"a text beside a refusal",
     R"([{"role":"user","content":[{"type":"refusal","text":"a","refusal":"b"}]}])",
     R"([{"role":"user","content":"b"}])"},
    {"no parts", R"([{"role":"user","content":[]}])", R"([{"role":"user","content":""}])"},
    {"null", R"([{"role":"assistant","content":null}])", R"([{"role":"assistant","content":""}])"},
    {"none", R"([{"role":"assistant"}])", R"([{"role":"assistant","content":""}])"},
    {"developer", R"([{"role":"developer","content":"a"}])",
     R"([{"role":"system","content":"a"}])"},
    {"others", R"([{"role":"tool","name":"f","n":[1,2.5,{"a":null}],"content":"a"}])",
     R"([{"role":"tool","name":"f","n":[1,2.5,{"a":null}],"content":"a"}])"},
    {"escapes", R"([{"role":"user","content":"\"\\\u0001\u00e4\ud83d\ude00"}])",
     "[{\"role\":\"user\",\"content\":\"\\\"\\\\\\u0001\xc3\xa4\xf0\x9f\x98\x80\"}]"},
    {"empty", "[]", "refused: 'messages' must have a message"},
    {"no list", "{}", "refused: 'messages' must be a list of messages"},
    {"no object", "[1]", "refused: 'messages[0]' must be an object"},
    {"list in list", "[[]]", "refused: 'messages[0]' must be an object"},
    {"no role", R"([{"content":"a"}])", "refused: 'messages[0].role' is missing"},
    {"no content", R"([{"role":"user"}])", "refused: 'messages[0].content' is missing"},
    {"role", R"([{"role":"assistant"},{"role":"boss"}])",
     "refused: 'messages[1].role' must be system, developer, user, assistant or tool"},
    {"content", R"([{"role":"user","content":1}])",
     "refused: 'messages[0].content' must be a text or a list of parts"},
    {"image", R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}])",
     "refused: 'messages[0].content' has a part that is no text: this version reads text alone"},
    {"part", R"([{"role":"user","content":["a"]}])",
     "refused: 'messages[0].content' must be a text or a list of parts"},
    {"part without text", R"([{"role":"user","content":[{"type":"text"}]}])",
     "refused: 'messages[0].content' has a part without its text"},
    {"chunk",
     R"([{"role":"user","content":[{"type":"text","text":"a","tarn":{"chunk":true}},)"
     R"({"type":"text","text":"b","tarn":{"chunk":false}},)"
     R"({"tarn":null,"type":"text","text":"c"}]}])",
     "[{\"role\":\"user\",\"content\":\"\uFDD0"
     "a\uFDD1\\nb\\nc\"}]"},
    {"empty chunk",
     R"([{"role":"user","content":[{"type":"text","text":"","tarn":{"chunk":true}}]}])",
     "refused: 'messages[0].content' has a chunk that is empty: leave it out"},
    {"another mark",
     R"([{"role":"user","content":[{"type":"text","text":"a","tarn":{"part":1}}]}])",
     "refused: 'messages[0].content' has a part with another tarn than {\"chunk\": true}"},
    {"no mark", R"([{"role":"user","content":[{"type":"text","text":"a","tarn":true}]}])",
     "refused: 'messages[0].content' has a part with another tarn than {\"chunk\": true}"},
    {"a chunk without its tarn",
     R"([{"role":"user","content":[{"type":"text","text":"a","chunk":true}]}])",
     "refused: 'messages[0].content.chunk' "
     "has no meaning here: a chunk is a part of a content, {\"type\": \"text\", \"text\": "
     "..., \"tarn\": {\"chunk\": true}}"},
    {"a message as a chunk", R"([{"role":"user","content":"a","chunk":true}])",
     "refused: 'messages[0].chunk' "
     "has no meaning here: a chunk is a part of a content, {\"type\": \"text\", \"text\": "
     "..., \"tarn\": {\"chunk\": true}}"},
    {"a mark of a message", R"([{"role":"user","tarn":{"chunk":true},"content":"a"}])",
     "refused: 'messages[0].tarn' "
     "has no meaning here: a chunk is a part of a content, {\"type\": \"text\", \"text\": "
     "..., \"tarn\": {\"chunk\": true}}"},
    {"a chunk's character",
     R"([{"role":"user","content":[{"type":"text","text":"a","tarn":{"chunk":true}}]},)"
     R"({"role":"user","content":"\ufdd0b"}])",
     "refused: 'messages' has U+FDD0 or U+FDD1, which stand around chunks, in a text: leave them "
     "out"},
    {"a character", R"([{"role":"user","content":"\ufdd0b"}])",
     "[{\"role\":\"user\",\"content\":\"\uFDD0"
     "b\"}]"},
    {"twice", R"([{"role":"user","role":"user"}])",
     "refused: 'messages[0]' has a member twice, or more than 256"},
};

TEST_CASE("messages") {
  for (const MessagesCase& each : kMessages) {
    CAPTURE(each.name);
    CHECK(messages_of(each.messages) == each.written);
  }
}

TEST_CASE("template arguments are handed on") {
  Body body;
  REQUIRE_FALSE(read(
      R"({"messages":[{"role":"assistant"}],"chat_template_kwargs":{"a":[1,"b",{}]}})", &body));
  CHECK(body.template_arguments_json == R"({"a":[1,"b",{}]})");
}

}  // namespace
}  // namespace tarn::daemon::body_reader_test
