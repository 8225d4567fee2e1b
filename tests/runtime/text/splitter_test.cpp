// Goal    each splitter cuts where its regular expression would.
// Method  a table of texts and pre-tokens, read off the expressions by hand; ill-formed UTF-8,
//         which no regex engine takes, decoded as unicode.h says; every cut text is whole again.
#include "runtime/text/splitter.h"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/seed.h"

namespace tarn::text::splitter_test {
namespace {

std::string cut(PreTokenizer pre, std::string_view text) {
  std::string out;
  Splitter splitter(pre, text);
  for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
    out += (out.empty() ? "" : "|") + std::string(piece);
  }
  return out;
}

struct Case {
  const char* name;
  std::string_view text;
  std::string_view gpt2, llama_bpe, qwen2;
};

// clang-format off
constexpr Case kCases[] = {
    {"nothing", "", "", "", ""},
    {"words", "Hello  world", "Hello| | world", "Hello| | world", "Hello| | world"},
    {"trailing spaces stay whole", "a  ", "a|  ", "a|  ", "a|  "},
    {"contractions", "I'm we'LL'x", "I|'m| we|'|LL|'|x", "I|'m| we|'LL|'x", "I|'m| we|'LL|'x"},
    {"a cut contraction", "'l", "'|l", "'l", "'l"},
    {"U+017F folds to s in other engines", "'\u017f", "'|\u017f", "'\u017f", "'\u017f"},
    {"digits", " 12345a", " 12345|a", " |123|45|a", " |1|2|3|4|5|a"},
    {"a sign takes one space", "a  !?b", "a| | !?|b", "a| | !?|b", "a| | !?|b"},
    {"a sign takes newlines", "!\r\n\n x", "!|\r\n\n| x", "!\r\n\n| x", "!\r\n\n| x"},
    {"a tab joins letters", "a\tb", "a|\t|b", "a|\tb", "a|\tb"},
    {"a newline does not", "a\nb", "a|\n|b", "a|\n|b", "a|\n|b"},
    {"spaces up to the last newline", "a \n \n  b", "a| \n \n | b", "a| \n \n| | b", "a| \n \n| | b"},
    {"wide spaces are spaces", "a\u3000\u3000b", "a|\u3000|\u3000|b", "a|\u3000|\u3000b", "a|\u3000|\u3000b"},
    {"marks are not letters", "e\u0301a", "e|\u0301|a", "e|\u0301a", "e|\u0301a"},
    {"numbers of all scripts", "\u0663\u00bd\u2167x", "\u0663\u00bd\u2167|x", "\u0663\u00bd\u2167|x", "\u0663|\u00bd|\u2167|x"},
    {"stray bytes are signs", "a\xff\xff" "b", "a|\xff\xff|b", "a|\xff\xff|b", "a|\xff\xff|b"},
    {"one sign joins letters", "a\xff" "b", "a|\xff|b", "a|\xff" "b", "a|\xff" "b"},
    {"a cut character is signs", "\xe4\xb8 x", "\xe4\xb8| x", "\xe4\xb8| x", "\xe4\xb8| x"},
    {"an overlong letter is one", "a\xc1\x81" "b", "a\xc1\x81" "b", "a\xc1\x81" "b", "a\xc1\x81" "b"},
    {"beyond Unicode is signs", "\xf4\x90\x80\x80", "\xf4\x90\x80\x80", "\xf4\x90\x80\x80", "\xf4\x90\x80\x80"},
    {"letters of Unicode 15.1", "a\U0002ebf0", "a\U0002ebf0", "a\U0002ebf0", "a\U0002ebf0"},
};
// clang-format on

TEST_CASE("texts are cut as the expressions say") {
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.name));
    CHECK(cut(PreTokenizer::gpt2, c.text) == c.gpt2);
    CHECK(cut(PreTokenizer::llama_bpe, c.text) == c.llama_bpe);
    CHECK(cut(PreTokenizer::qwen2, c.text) == c.qwen2);
  }
}

TEST_CASE("digits stand alone, and the text beside them ends there") {
  CHECK(cut(PreTokenizer::smollm, "a  12 3") == "a|  |1|2| |3");
  CHECK(cut(PreTokenizer::smollm, "x 1's\u0663  b") == "x| |1|'s|\u0663| | b");
  CHECK(cut(PreTokenizer::smollm, "'1s") == "'|1|s");
}

TEST_CASE("hostile runs are cut in linear time") {
  for (const std::string_view part : {" ", "1", "\u0663", "A", "\u00c9A", "a ", "a 1", "\n ", "!",
                                      "\u0301", "\u4e2d", "\xff", " \u3000", "12 ", "\u00b2345"}) {
    std::string text;
    while (text.size() < 100'000) text += part;
    text += "x";
    CAPTURE(text.substr(0, 8));
    for (u8 row = 1; row < static_cast<u8>(PreTokenizer::count); ++row) {
      Splitter splitter(static_cast<PreTokenizer>(row), text);
      u64 n_bytes = 0;
      for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
        n_bytes += piece.size();
      }
      REQUIRE(n_bytes == text.size());
    }
  }
}

TEST_CASE("any bytes are cut into pieces that make the whole again") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 round = 0; round < 4'000; ++round) {
    std::string text(random.below(40), '\0');
    for (char& c : text) c = static_cast<char>(random.below(random.below(2) == 0 ? 256 : 128));
    for (u8 row = 1; row < static_cast<u8>(PreTokenizer::count); ++row) {
      const PreTokenizer pre = static_cast<PreTokenizer>(row);
      Splitter splitter(pre, text);
      std::string whole;
      for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) whole += piece;
      REQUIRE(whole == text);
    }
  }
}

}  // namespace
}  // namespace tarn::text::splitter_test
