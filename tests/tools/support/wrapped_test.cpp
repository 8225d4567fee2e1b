// Goal    help is broken into lines of the width that is asked for, and says the same words.
// Method  texts by hand; texts of random words at every width, against the definition: no line is
//         longer, and no line has room for the word that begins the next one.
#include "tools/support/wrapped.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/seed.h"

namespace tarn::tools::wrapped_test {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

TEST_CASE("lines are broken between words, and long words behind commas") {
  CHECK(wrapped("a line  that fits", {.width = 17}) == "a line  that fits");
  CHECK(wrapped("a line  that fits", {.width = 15}) == "a line that\nfits");
  CHECK(wrapped("one two", {.column = 4, .indent = 2, .width = 8}) == "one\n  two");
  CHECK(wrapped("--x T:{aa,bb,cc}", {.indent = 4, .width = 12}) == "--x T:{aa,\n    bb,cc}");
  CHECK(wrapped("unbreakable", {.width = 5}) == "unbreakable");
  CHECK(wrapped("", {.width = 5}) == "");
  CHECK(wrapped_lines("\nHead:\n  one two\n", 7) == "\nHead:\n  one\n  two\n");
  CHECK(wrapped_entry("-n INT", "so many", 80) == "  -n INT" + std::string(22, ' ') + "so many\n");
  CHECK(wrapped_entry("--a-name-of-so-many-columns-30", "so many", 80) ==
        "  --a-name-of-so-many-columns-30\n" + std::string(30, ' ') + "so many\n");
  CHECK(wrapped_entry("--option-of-more T:{first,second}", "so many", 34) ==
        "  --option-of-more\n      T:{first,second}\n" + std::string(30, ' ') + "so\n" +
            std::string(30, ' ') + "many\n");
  CHECK(wrapped_entry("-n INT", "", 80) == "  -n INT\n");
}

TEST_CASE(
    "no line is longer than asked for or has room for the next word, and all words are there") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (size_t width = 40; width < 120; ++width) {
    CAPTURE(width);
    std::string text;
    for (u64 n = 1 + random.below(60); n > 0; --n) {
      text += std::string(1 + random.below(10), 'a') + (n > 1 ? " " : "");
    }
    const std::string broken = wrapped(text, {.column = 30, .indent = 30, .width = width});
    const std::vector<std::string> lines = lines_of(std::string(30, ' ') + broken);
    CHECK(words_of(broken) == words_of(text));
    for (size_t i = 0; i < lines.size(); ++i) {
      CHECK(lines[i].size() <= width);
      CHECK(lines[i].find_first_not_of(' ') == 30);
      if (i == 0) continue;
      CHECK(lines[i - 1].size() + 1 + words_of(lines[i]).front().size() > width);
    }
  }
}

}  // namespace
}  // namespace tarn::tools::wrapped_test
