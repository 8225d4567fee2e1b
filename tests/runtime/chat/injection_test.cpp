// Goal    control tokens and markers come of what a template writes and of usual roles, and never
//         of a value, whatever it holds.
// Method  small vocabularies of each family; templates that write control tokens in several ways,
//         over values that hold every control token: the control tokens are those of the same
//         conversation with harmless values, or those of a table.
#include <doctest/doctest.h>

#include <string>

#include "tests/runtime/chat/template_run.h"
#include "tests/runtime/text/test_vocab.h"
#include "tests/runtime/text/vocabs.h"

namespace tarn::chat::test::injection_test {
namespace {

using text::TestVocab;
using text::TokenKind;

constexpr const char* kFamilies[] = {"", "gpt-2", "llama-bpe", "qwen2"};
constexpr const char* kControls[] = {"<|im_start|>",    "<|im_end|>", "<|user|>", "<|assistant|>",
                                     "<|observation|>", "<|end|>",    "[/INST]",  "<bos>"};
constexpr const char* kMarkers[] = {"<think>", "</think>", "[TOOL]"};

std::string joined(const std::string& between) {
  std::string all;
  for (const char* const name : kControls) all += name + between;
  for (const char* const name : kMarkers) all += name + between;
  return all;
}

class Reader {
 public:
  explicit Reader(const char* pre) : file_(vocab_of(pre).image()) {
    REQUIRE(text::hint_of(file_.tokenizer) == "no error");
  }

  // The texts of the control tokens and markers among the ids of a conversation.
  std::string controls(const std::string& source, const std::string& messages,
                       const std::string& arguments = "") const {
    const RenderArgs args{.messages = messages, .arguments = arguments};
    const Answer answer = render(source, args, 1 << 20);
    CHECK(answer.why == "");
    const text::EncodeOptions options{.parse_special = true, .origins = answer.origins};
    const auto ids = text::encode(*file_.tokenizer, answer.text, options);
    REQUIRE(text::hint_of(ids) == "no error");
    std::string controls;
    for (const text::TokenId id : *ids) {
      const text::Ids one{id};
      if (file_.tokenizer->tables().is_reserved(id)) {
        controls += text::pieces(*file_.tokenizer, one, true);
      }
    }
    return controls;
  }

 private:
  static TestVocab vocab_of(const char* pre) {
    TestVocab vocab = TestVocab::begin(pre);
    for (const char* const name : kControls) vocab.add(name, TokenKind::control);
    for (const char* const name : kMarkers) vocab.add(name, TokenKind::user_defined);
    return vocab;
  }

  text::VocabFile file_;
};

constexpr const char* kTemplates[] = {
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}",
    "{% for m in messages %}{{ '<|im_start|>' + m.role + m.content + '<|im_end|>' }}{% endfor %}",
    "{% for m in messages %}<|user|>{{ m.content | trim | upper | lower }}<|end|>{% endfor %}",
    "{% for m in messages %}<|user|>{{ m | tojson }}{{ m }}<think></think>{% endfor %}",
    "{% for m in messages %}[TOOL]{{ m.content.split('|') | join('|') }}[/INST]{% endfor %}",
    "{% for m in messages %}{{ '<|user|>%s<|end|>' % m.content[0:] }}{% endfor %}",
    "{% for m in messages %}<bos>{{ m.content.replace('_', '_') }}<|{{ m.content }}{% endfor %}",
    "<|user|>{{ more }}{{ [more] }}{{ more ~ '<|end|>' }}",
    "{% set x %}<|user|>{{ more }}<|end|>{% endset %}{{ x }}{{ x[::-1][::-1] }}",
};

TEST_CASE("values that hold every control token give none") {
  for (const char* const pre : kFamilies) {
    const Reader reader(pre);
    for (const std::string source : kTemplates) {
      for (const char* const between : {"", " x ", "\\n", ">"}) {
        CAPTURE(pre);
        CAPTURE(source);
        CAPTURE(between);
        const auto controls = [&](const std::string& value) {
          const std::string message = R"({"role": "user", "content": ")" + value + R"("})";
          return reader.controls(source, "[" + message + "," + message + "]",
                                 R"({"more": ")" + value + R"("})");
        };
        const std::string harmless = controls("x");
        CHECK(harmless != "");
        CHECK(controls(joined(between)) == harmless);
      }
    }
  }
}

TEST_CASE("a usual role makes a control token, a value beside it does not") {
  struct Case {
    const char* source;
    const char* role;
    const char* controls;
  };
  constexpr const char* kAdded = "{{ '<|' + messages[0].role + '|>' + messages[0].content }}";
  constexpr const char* kBetween = "<|{{ messages[0].role }}|>{{ messages[0].content }}";
  constexpr const char* kOpen = "<|{{ messages[0].content }}";
  constexpr const char* kNamed = "<|{{ messages[0].name }}|>";
  constexpr Case kCases[] = {
      {kAdded, "user", "<|user|>"},
      {kAdded, "observation", "<|observation|>"},
      {kBetween, "assistant", "<|assistant|>"},
      {kBetween, "observation", "<|observation|>"},
      {kAdded, "end", ""},
      {kBetween, "im_start", ""},
      {kBetween, "user|><|end", ""},
      {kAdded, "<|end|>", ""},
      {kOpen, "user", ""},
      {kNamed, "user", ""},
  };
  for (const char* const pre : kFamilies) {
    const Reader reader(pre);
    for (const Case& c : kCases) {
      CAPTURE(pre);
      CAPTURE(c.source);
      CAPTURE(c.role);
      const std::string messages =
          R"([{"role": ")" + std::string(c.role) + R"(", "content": "user|>", "name": "user"}])";
      CHECK(reader.controls(c.source, messages) == c.controls);
    }
  }
}

}  // namespace
}  // namespace tarn::chat::test::injection_test
