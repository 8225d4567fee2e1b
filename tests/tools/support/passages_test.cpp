// Goal    A text is cut into passages of n_max tokens at most whose texts behind each other are the
//         text: behind line breaks, a passage as long as the next line lets it be; in longer lines
//         behind spaces, and else between characters.
// Method  a table of texts and lengths, with the built-in model's vocabulary; each border is tried
//         with the next line, word or character added.
#include <doctest/doctest.h>

#include <string>

#include "tests/support/folders.h"
#include "tools/support/input.h"
#include "tools/support/passages.h"

namespace tarn::passages_test {
namespace {

std::string repeated(const std::string& text, u32 n) {
  std::string all;
  for (u32 i = 0; i < n; ++i) all += text;
  return all;
}

// The text up to the next border behind `at`.
std::string up_to(const std::string& text, u64 at, char behind) {
  if (behind != '\0') {
    const u64 end = text.find(behind, at);
    return text.substr(0, end == std::string::npos ? end : end + 1);
  }
  u64 end = at + 1;
  while (end < text.size() && (static_cast<u8>(text[end]) & 0xC0) == 0x80) ++end;
  return text.substr(0, end);
}

}  // namespace

TEST_CASE("passages are whole, short enough, and as long as their borders let them be") {
  tools::ModelFile model(test::source_folder() + "/tools/builtin/logbook.gguf");
  struct Case {
    const char* name;
    std::string text;
    u32 n_max;
    char behind;  // what every passage but the last one ends with; 0: any character
  };
  const Case cases[] = {
      {"nothing", "", 16, '\n'},
      {"a short text", "The heat of fan U5 is 724.\n", 64, '\n'},
      {"without a line break", "The heat of fan U5 is 724", 64, '\n'},
      {"lines", tools::read_file(test::source_folder() + "/runtime/ARCHITECTURE.md"), 256, '\n'},
      {"another", tools::read_file(test::source_folder() + "/README.md"), 400, '\n'},
      {"empty lines", repeated("a line\n\n\n", 100), 16, '\n'},
      {"a long line", repeated("The heat of fan U5 is 724. ", 100), 32, ' '},
      {"no spaces", repeated("Donaudampfschiff", 100), 32, '\0'},
      {"characters of three bytes", repeated("\xE6\xB8\xA9\xE5\xBA\xA6", 100), 32, '\0'},
      {"characters of four bytes", repeated("\xF0\x9F\x90\x88", 100), 16, '\0'},
      {"no UTF-8", repeated("\x80\xFF\xC0", 100), 16, '\0'},
      {"no character", repeated("\x80", 1000), 16, '\0'},
  };
  for (const Case& each : cases) {
    CAPTURE(std::string(each.name));
    const auto passages = tools::cut_into_passages(model, each.text, each.n_max);
    std::string all;
    for (u64 i = 0; i < passages.size(); ++i) {
      const tools::Passage& passage = passages[i];
      CAPTURE(i);
      CHECK(!passage.text.empty());
      CHECK(passage.ids == model.encode(passage.text, {}));
      CHECK(passage.ids.size() <= each.n_max);
      const std::string rest = each.text.substr(all.size());
      all += passage.text;
      if (i + 1 == passages.size()) continue;
      if (each.behind != '\0') CHECK(passage.text.back() == each.behind);
      const u8 next = static_cast<u8>(each.text[all.size()]);
      if (std::string(each.name).substr(0, 2) != "no") CHECK((next & 0xC0) != 0x80);
      const std::string longer = up_to(rest, passage.text.size(), each.behind);
      CHECK(model.encode(longer, {}).size() > each.n_max);
    }
    CHECK(all == each.text);
  }
}

}  // namespace tarn::passages_test
