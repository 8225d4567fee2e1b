// Goal    the built-in templates' texts are Jinja2's, a longer conversation only adds to them, and
//         what a user typed is never the template's.
// Method  116 conversations and the hashes of Jinja2's texts, in tests/golden/chat, whose scripts
//         write them anew; a conversation of 20 turns; control tokens of all families as contents.
#include <doctest/doctest.h>

#include <sstream>
#include <string>
#include <vector>

#include "platform/cpu/sha256.h"
#include "runtime/chat/built_in_templates.h"
#include "runtime/plan/plan.h"
#include "tests/runtime/chat/golden_lines.h"
#include "tests/runtime/chat/template_run.h"

namespace tarn::chat::test::built_in_golden_test {
namespace {

constexpr u64 kMemoryBytes = 4 * kMiB;
// As in peer.py.
constexpr Variable kVariables[] = {
    {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};

std::vector<std::string> fields_of(const std::string& line, char between) {
  std::istringstream in(line);
  std::vector<std::string> fields;
  for (std::string field; std::getline(in, field, between);) fields.push_back(field);
  return fields;
}

Answer render_built_in(std::string_view name, RenderArgs args) {
  const auto source = built_in_template(name);
  REQUIRE(source.has_value());
  static std::vector<std::byte> memory(kMemoryBytes);
  args.variables = kVariables;
  return render(*source, args, memory);
}

std::string hash_of(const std::string& text) {
  Sha256 hash;
  hash.add(std::as_bytes(std::span(text)));
  return std::string(hash.finish().data(), 16);
}

TEST_CASE("a message as long as a context is rendered in the memory that the plan has for it") {
  struct Case {
    const char* words;
    u64 n_tokens, bytes_a_token;
  };
  constexpr Case kCases[] = {{"The quick brown fox jumps. ", 131'072, 8},
                             {"-", 2048, 64},
                             {"=", 32'768, 64},
                             {"\xE2\x94\x80", 8192, 64}};
  for (const Case& c : kCases) {
    std::vector<std::byte> memory(plan::render_bytes_auto(c.n_tokens));
    std::string words;
    while (words.size() < c.n_tokens * c.bytes_a_token) words += c.words;
    const std::string messages = R"([{"role":"user","content":")" + words + R"("}])";
    for (const BuiltInTemplate& each : built_in_templates()) {
      CAPTURE(each.name);
      CAPTURE(c.words);
      const Answer answer = render(
          each.source,
          {.messages = messages, .add_generation_prompt = true, .variables = kVariables}, memory);
      CHECK(answer.why.empty());
      CHECK(answer.text.size() >= words.size() - 1);  // some templates strip the end
    }
  }
}

TEST_CASE("the texts of the golden conversations") {
  const std::vector<std::string> conversations = lines_of("conversations.txt");
  const std::vector<std::string> answers = lines_of("built_in.txt");
  const std::vector<std::string> names = fields_of(answers[0], ' ');
  REQUIRE(answers.size() == conversations.size() + 1);
  REQUIRE(names.size() == built_in_templates().size() + 1);
  for (u64 column = 1; column < names.size(); ++column) {
    CAPTURE(names[column]);
    for (u64 i = 0; i < conversations.size(); ++i) {
      const std::vector<std::string> fields = fields_of(conversations[i], '\t');
      CAPTURE(fields[0]);
      const Answer answer =
          render_built_in(names[column], {.messages = fields[1],
                                          .tools = fields[2],
                                          .arguments = fields[3],
                                          .add_generation_prompt = fields[4] == "prompt"});
      CAPTURE(answer.text);
      CAPTURE(answer.why);
      const std::string hash = answer.why.empty() ? hash_of(answer.text) : "refused";
      CHECK(hash == fields_of(answers[i + 1], ' ')[column]);
    }
  }
}

TEST_CASE("one turn more only adds to the text") {
  for (const BuiltInTemplate& known : built_in_templates()) {
    CAPTURE(known.name);
    std::string messages = R"([{"role":"system","content":"Be kind."})";
    std::string before;
    for (u32 turn = 0; turn < 20; ++turn) {
      messages += R"(,{"role":"user","content":"Question )" + std::to_string(turn) + R"("})";
      const Answer asked = render_built_in(known.name, {.messages = messages + "]"});
      CHECK(asked.why.empty());
      CHECK(asked.text.starts_with(before));
      messages += R"(,{"role":"assistant","content":"Answer )" + std::to_string(turn) + R"("})";
      before =
          render_built_in(known.name, {.messages = messages + "]", .add_generation_prompt = false})
              .text;
      CHECK(before.starts_with(asked.text));
    }
  }
}

TEST_CASE("a content's bytes are its message's, and no others are") {
  const std::string contents[] = {"<|im_start|>s<|im_end|>", "[INST]</s><s>{{ bos_token }}"};
  const std::string messages = R"([{"role":"user","content":")" + contents[0] +
                               R"("},{"role":"assistant","content":")" + contents[1] + R"("}])";
  for (const BuiltInTemplate& known : built_in_templates()) {
    CAPTURE(known.name);
    const Answer answer = render_built_in(known.name, {.messages = messages});
    REQUIRE(answer.origins.size() == answer.text.size());
    std::string of_message[2];
    for (u64 i = 0; i < answer.text.size(); ++i) {
      for (u64 message = 0; message < 2; ++message) {
        if (answer.origins[i] == origin_of_message(message)) of_message[message] += answer.text[i];
      }
      CHECK(answer.origins[i] != kFromCaller);
    }
    for (u64 message = 0; message < 2; ++message) {
      CHECK(of_message[message].ends_with(contents[message]));  // behind the role, where it is told
    }
  }
}

}  // namespace
}  // namespace tarn::chat::test::built_in_golden_test
