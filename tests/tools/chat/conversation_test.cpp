// Goal    each line of a conversation does what its help says, and the messages are those that the
//         person sees; a kept list of messages reads back, and anything else is refused.
// Method  tables of lines, with what each asks for and the messages at the end.
#include "tools/chat/conversation.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tools/support/exit_code.h"

namespace tarn::tools::conversation_test {
namespace {

using Want = ChatWant;
using Messages = std::vector<ChatMessage>;

struct Line {
  std::string text;
  Want want;
};

struct Case {
  const char* name;
  std::vector<Line> lines;
  Messages messages;  // an answer is "A" and the number of messages before it
};

const Messages kOneTurn = {{"system", "S"}, {"user", "hi"}, {"assistant", "A2"}};

const Case kCases[] = {
    {"a turn", {{"hi", Want::answer}}, kOneTurn},
    {"blank lines", {{"", Want::nothing}, {" \t\r", Want::nothing}}, {{"system", "S"}}},
    {"spaces stay",
     {{" hi ", Want::answer}},
     {{"system", "S"}, {"user", " hi "}, {"assistant", "A2"}}},
    {"two turns",
     {{"hi", Want::answer}, {"more", Want::answer}},
     {{"system", "S"}, {"user", "hi"}, {"assistant", "A2"}, {"user", "more"}, {"assistant", "A4"}}},
    {"several lines",
     {{"\"\"\"", Want::nothing},
      {"a", Want::nothing},
      {"", Want::nothing},
      {"/b", Want::nothing},
      {"\"\"\"", Want::answer}},
     {{"system", "S"}, {"user", "a\n\n/b"}, {"assistant", "A2"}}},
    {"several lines, begun and ended beside the text",
     {{"\"\"\"a", Want::nothing}, {"b\"\"\"", Want::answer}},
     {{"system", "S"}, {"user", "a\nb"}, {"assistant", "A2"}}},
    {"\"\"\" on one line",
     {{"\"\"\"/a\"\"\"", Want::answer}},
     {{"system", "S"}, {"user", "/a"}, {"assistant", "A2"}}},
    {"\"\"\" around nothing",
     {{"\"\"\"\"\"\"", Want::nothing},
      {"\"\"\"", Want::nothing},
      {"", Want::nothing},
      {"\"\"\"", Want::nothing}},
     {{"system", "S"}}},
    {"a line break of the text beside \"\"\"",
     {{"\"\"\"", Want::nothing},
      {"", Want::nothing},
      {"a", Want::nothing},
      {"\"\"\"", Want::answer}},
     {{"system", "S"}, {"user", "\na"}, {"assistant", "A2"}}},
    {"undo", {{"hi", Want::answer}, {"more", Want::answer}, {"/undo", Want::changed}}, kOneTurn},
    {"undo more than there is",
     {{"hi", Want::answer}, {"/undo", Want::changed}, {"/undo", Want::refuse}},
     {{"system", "S"}}},
    {"reset",
     {{"hi", Want::answer}, {"more", Want::answer}, {"/reset ", Want::changed}},
     {{"system", "S"}}},
    {"commands that change nothing",
     {{"hi", Want::answer},
      {"/help", Want::tell},
      {"/save", Want::save},
      {"/stats", Want::stats},
      {"/context", Want::context}},
     kOneTurn},
    {"no command",
     {{"/Help", Want::refuse}, {"/", Want::refuse}, {"/undo 2", Want::refuse}},
     {{"system", "S"}}},
    {"bytes that are not UTF-8",
     {{"\xff", Want::refuse},
      {"\"\"\"", Want::nothing},
      {"\xc3", Want::refuse},
      {"hi", Want::answer}},
     kOneTurn},
};

TEST_CASE("each line does what its help says") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    Conversation conversation;
    conversation.set_system("S");
    for (const Line& line : c.lines) {
      CAPTURE(line.text);
      const ChatStep step = conversation.take(line.text);
      CHECK(step.want == line.want);
      const bool has_text =
          line.want == Want::tell || line.want == Want::refuse || line.want == Want::changed;
      CHECK(step.text.empty() != has_text);
      if (step.want != Want::answer) continue;
      conversation.answered("A" + std::to_string(conversation.messages().size()));
    }
    CHECK_FALSE(conversation.is_open());
    CHECK(conversation.messages() == c.messages);
  }
}

TEST_CASE("an unknown command is told with those that there are, and no escape of it") {
  Conversation conversation;
  const std::string text = conversation.take("/\x1b[2J").text;
  CHECK(text.find("/\\x1b[2J") != std::string::npos);
  for (const char* command : {"/help", "/reset", "/undo", "/save", "/stats", "/context"}) {
    CHECK(text.find(command) != std::string::npos);
    CHECK(conversation.take("/help").text.find(command) != std::string::npos);
  }
}

TEST_CASE("a message that is dropped before its end leaves nothing") {
  Conversation conversation;
  CHECK(conversation.take("\"\"\"a").want == Want::nothing);
  CHECK(conversation.is_open());
  conversation.drop_open();
  CHECK(conversation.take("b").want == Want::answer);
  CHECK(conversation.messages() == Messages{{"user", "b"}});
}

TEST_CASE("the system message is the first one, and is replaced by another") {
  Conversation conversation;
  conversation.begin({{"user", "a"}});
  conversation.set_system("one");
  conversation.set_system("two");
  CHECK(conversation.messages() == Messages{{"system", "two"}, {"user", "a"}});
}

TEST_CASE("messages read back as they were written, and a damaged list is refused") {
  const Messages messages = {
      {"system", ""},
      {"user", std::string("\"\\\n\t\0\x1b", 6) + "\xc3\xa4\xf0\x9f\x98\x80"},
      {"assistant", "</s> {} []"}};
  const std::string json = messages_to_json(messages);
  CHECK(messages_from_json(json, "x") == messages);
  CHECK(messages_from_json("[]", "x").empty());
  const std::string damaged[] = {"",
                                 "{}",
                                 "[1]",
                                 "[{\"role\": \"user\"}]",
                                 "[{\"role\": \"user\", \"content\": null}]",
                                 "[{\"role\": \"user\", \"content\": \"\xff\"}]",
                                 "[] []",
                                 std::string(1'000'000, '['),
                                 json.substr(0, json.size() - 3)};
  for (const std::string& text : damaged) {
    CAPTURE(text.substr(0, 80));
    CHECK_THROWS_AS(messages_from_json(text, "x"), Failure);
  }
}

}  // namespace
}  // namespace tarn::tools::conversation_test
