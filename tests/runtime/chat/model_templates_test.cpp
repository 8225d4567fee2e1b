// Goal    the template of a conversation is the host's, or else the file's, with tools the one for
//         tools; what cannot be taken refuses its conversations and nothing else.
// Method  a table of files' keys, hosts' wishes and the texts that must be found; a table of pairs
//         of templates and what they refuse.
#include "runtime/chat/model_templates.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/chat/built_in_templates.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_io.h"

namespace tarn::chat::model_templates_test {
namespace {

constexpr char kOwn[] = "tokenizer.chat_template";
constexpr char kForTools[] = "tokenizer.chat_template.tool_use";

// A file of these keys, and what its directory lies in.
class File {
 public:
  explicit File(const tarn::test::GgufImage& image) : bytes_(image.bytes()) {
    const IoFile file = io_.add(bytes_);
    const auto read = model::GgufFile::read(io_, file, bump_);
    REQUIRE(read.has_value());
    gguf_ = *read;
  }
  Result<TemplateSources> find(std::string_view wanted) {
    return find_templates(wanted, gguf_, bump_);
  }

 private:
  tarn::test::Bytes bytes_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(4 * kMiB);
  Bump bump_{memory_};
  tarn::test::MemoryIo io_{};
  model::GgufFile gguf_{};
};

tarn::test::GgufImage image_with(const std::string& own, const std::string& for_tools) {
  tarn::test::GgufImage image;
  if (!own.empty()) image.set_string(kOwn, own);
  if (!for_tools.empty()) image.set_string(kForTools, for_tools);
  return image;
}

TEST_CASE("the host's template, else the file's") {
  struct Case {
    const char* name;
    std::string own, for_tools, wanted;
    std::string text, with_tools;
  };
  const std::string chatml(*built_in_template("chatml"));
  const Case cases[] = {
      {"none", "", "", "", "", ""},
      {"own", "{{1}}", "", "", "{{1}}", ""},
      {"both", "{{1}}", "{{2}}", "", "{{1}}", "{{2}}"},
      {"for tools alone", "", "{{2}}", "", "", "{{2}}"},
      {"a name for both", "{{1}}", "{{2}}", "chatml", chatml, ""},
      {"a text for both", "{{1}}", "{{2}}", "{{3}}", "{{3}}", ""},
      {"a text where there is none", "", "", "{# nothing #}", "{# nothing #}", ""},
      {"as long as any", std::string(kSourceBytesMax, 'x'), "", "",
       std::string(kSourceBytesMax, 'x'), ""},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    File file(image_with(c.own, c.for_tools));
    const auto found = file.find(c.wanted);
    REQUIRE(found.has_value());
    REQUIRE(found->text.has_value());
    REQUIRE(found->with_tools.has_value());
    CHECK(*found->text == c.text);
    CHECK(*found->with_tools == c.with_tools);
    CHECK((found->memory_bytes() == 0) == (c.text.empty() && c.with_tools.empty()));
  }
}

TEST_CASE("what the host asks for must be there, what the file has may be wrong") {
  File none{tarn::test::GgufImage()};
  const auto unknown = none.find("chatmi");
  REQUIRE_FALSE(unknown.has_value());
  CHECK(unknown.error().status == Status::invalid_config);
  CHECK(std::string(unknown.error().detail.c_str()) == "chatmi");

  tarn::test::GgufImage number = image_with("", "{{2}}"), zero, longer;
  number.set_u32(kOwn, 7);
  zero.set_string(kOwn, std::string("{{\0}}", 5));
  longer.set_string(kOwn, std::string(kSourceBytesMax + 1, 'x'));
  for (const tarn::test::GgufImage& image : {number, zero, longer}) {
    File file(image);
    const auto found = file.find("");
    REQUIRE(found.has_value());
    REQUIRE_FALSE(found->text.has_value());
    CHECK(found->text.error().status == Status::unsupported);
    CHECK(std::string(found->text.error().hint).find("--chat-template") != std::string::npos);
    REQUIRE(found->with_tools.has_value());
    CHECK(file.find("chatml")->text.has_value());
  }
}

TEST_CASE("a template that is none refuses its own conversations alone") {
  tarn::test::GgufImage vocab;
  vocab.set_string("tokenizer.ggml.model", "llama");
  vocab.set_strings("tokenizer.ggml.tokens", {"<unk>", "a"});
  vocab.set_f32s("tokenizer.ggml.scores", {0, 0});
  vocab.set_i32s("tokenizer.ggml.token_type", {2, 1});
  const text::VocabFile vocabulary(vocab);
  REQUIRE(vocabulary.tokenizer.has_value());
  constexpr char kBad[] = "{% if %}", kUnknown[] = "{{ 1 | no_such_filter }}";
  struct Case {
    std::string own, for_tools;
    Status plain, with_tools;  // of a rendering
  };
  const Case cases[] = {
      {"a", "b", Status::ok, Status::ok},
      {"a", kBad, Status::ok, Status::unsupported},
      {kBad, "b", Status::unsupported, Status::ok},
      {kUnknown, "", Status::unsupported, Status::unsupported},
      {std::string(kSourceBytesMax + 1, 'x'), "b", Status::unsupported, Status::ok},
      {"", "", Status::unsupported, Status::unsupported},
      {"{# nothing #}", "", Status::invalid_request, Status::invalid_request},
  };
  for (const Case& c : cases) {
    CAPTURE(c.own);
    CAPTURE(c.for_tools);
    TemplateSources sources;
    sources.text = std::string_view(c.own);
    sources.with_tools = std::string_view(c.for_tools);
    std::vector<std::byte> parsed(sources.memory_bytes() + Carver::kAlignment);
    std::vector<std::byte> memory(64 * kKiB);
    ModelTemplates templates;
    templates.parse(sources, {.templates = parsed, .render = memory}, *vocabulary.tokenizer);
    const bool is_parsed = c.own != kBad && c.own.size() <= kSourceBytesMax;
    CHECK(templates.check(false).has_value() == is_parsed);
    CHECK(templates.check(true).has_value() == (c.for_tools != kBad));
    for (const bool has_tools : {false, true}) {
      CAPTURE(has_tools);
      const auto rendered = templates.render(
          {.messages = R"([{"role":"user","content":"x"}])", .tools = has_tools ? "[]" : ""});
      CHECK((rendered ? Status::ok : rendered.error().status) ==
            (has_tools ? c.with_tools : c.plain));
      if (rendered) continue;
      CHECK(std::string(rendered.error().hint).find("--chat-template") != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace tarn::chat::model_templates_test
