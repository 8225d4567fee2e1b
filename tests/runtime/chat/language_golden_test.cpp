// Goal    the language is Jinja2's: a template gives Jinja2's text, or it is refused.
// Method  254 small templates and Jinja2's texts, in tests/golden/chat, whose make_golden.py writes
//         them anew. Those that Tarn refuses and Jinja2 does not are counted.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/runtime/chat/golden_lines.h"
#include "tests/runtime/chat/template_run.h"

namespace tarn::chat::test::language_golden_test {
namespace {

constexpr u64 kMemoryBytes = 4 * kMiB;
constexpr u32 kUnknownMax = 39;  // may only fall

// peer.py's unescaped().
std::string unescaped(std::string_view text) {
  std::string out;
  for (u64 at = 0; at < text.size(); ++at) {
    const std::string_view kNames = "\\ntr", kChars = "\\\n\t\r";
    const bool is_escape = text[at] == '\\' && at + 1 < text.size() &&
                           kNames.find(text[at + 1]) != std::string_view::npos;
    out += is_escape ? kChars[kNames.find(text[++at])] : text[at];
  }
  return out;
}

TEST_CASE("small templates that go through the language") {
  const std::vector<std::string> sources = lines_of("language.txt");
  const std::vector<std::string> answers = lines_of("language_answers.txt");
  REQUIRE(answers.size() == sources.size() + 2);
  constexpr Variable kTokens[] = {
      {"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
  const RenderArgs args{.messages = answers[0], .arguments = answers[1], .variables = kTokens};
  std::vector<std::byte> memory(kMemoryBytes);
  u32 n_unknown = 0;
  for (u64 i = 0; i < sources.size(); ++i) {
    CAPTURE(sources[i]);
    const bool is_text = sources[i].starts_with('>');
    const std::string source = is_text ? unescaped(sources[i].substr(1)) : sources[i];
    const std::string& answer = answers[i + 2];
    const Answer rendered = render(source, args, memory);
    if (!rendered.why.empty()) {
      n_unknown += answer != "refused";
      continue;
    }
    CHECK(answer != "refused");
    CHECK("=" + rendered.text + "=" == unescaped(answer));
  }
  CHECK(n_unknown <= kUnknownMax);
}

}  // namespace
}  // namespace tarn::chat::test::language_golden_test
