// Goal    the hand-written splitters are the regular expressions they stand for; the classes of all
//         code points are those of a second Unicode implementation.
// Method  PCRE2 in UTF mode with the original patterns on generated strings: 10^5 here, 10^6 and
//         more with TARN_TEST_SCALE=10. PCRE2's Unicode may be older or newer than the table's:
//         code points that it does not know, or knows otherwise only because it is newer, take no
//         part.
#include <doctest/doctest.h>

#include "tests/support/skip.h"

#ifndef TARN_HAVE_PCRE2
TEST_CASE("PCRE2 agrees with the splitters") { TARN_SKIP("built without PCRE2 (libpcre2-dev)"); }
#else

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/text/splitter.h"
#include "runtime/text/unicode.h"
#include "tests/support/seed.h"

namespace tarn::text::splitter_pcre2_test {
namespace {

class Regex {
 public:
  explicit Regex(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE at = 0;
    code_ = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
    REQUIRE(code_ != nullptr);
    pcre2_jit_compile(code_, PCRE2_JIT_COMPLETE);  // only for speed
    match_ = pcre2_match_data_create_from_pattern(code_, nullptr);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  ~Regex() {
    pcre2_match_data_free(match_);
    pcre2_code_free(code_);
  }

  // Where the match that starts at or behind `at` begins and ends; false if there is none.
  bool find(std::string_view text, u64 at, u64& begin, u64& end) const {
    const int n = pcre2_match(code_, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at, 0,
                              match_, nullptr);
    if (n < 0) return false;
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match_);
    begin = ends[0];
    end = ends[1];
    return true;
  }
  bool matches(std::string_view text) const {
    u64 begin = 0, end = 0;
    return find(text, 0, begin, end);
  }

 private:
  pcre2_code* code_ = nullptr;
  pcre2_match_data* match_ = nullptr;
};

std::string utf8(u32 code_point) {
  char bytes[4];
  return {bytes, encode_utf8(code_point, bytes)};
}

constexpr u32 kMongolianVowelSeparator = 0x180E;  // \s of Perl and PCRE2, not White_Space since 6.3
bool is_surrogate(u32 code_point) { return code_point >= 0xD800 && code_point < 0xE000; }

int pcre2_unicode_major() {
  char version[32] = {};
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, version);
  return std::atoi(version);
}

// Code points whose class is the same for both, by class; the rest counted and judged.
struct Agreed {
  std::vector<u32> points[4];
  u32 n_unknown = 0, n_different = 0;

  Agreed() {
    const Regex letter("^\\p{L}"), number("^\\p{N}"), space("^\\s"), unassigned("^\\p{Cn}");
    const bool newer = pcre2_unicode_major() > 15;
    for (u32 point = 0; point < 0x110000; ++point) {
      if (is_surrogate(point) || point == kMongolianVowelSeparator) continue;
      const std::string text = utf8(point);
      const CharClass theirs = letter.matches(text)   ? CharClass::letter
                               : number.matches(text) ? CharClass::number
                               : space.matches(text)  ? CharClass::space
                                                      : CharClass::other;
      const CharClass ours = class_of(point);
      if (ours == theirs) {
        points[static_cast<u32>(ours)].push_back(point);
      } else if (unassigned.matches(text) || (newer && ours == CharClass::other)) {
        n_unknown += 1;
      } else {
        n_different += 1;
      }
    }
  }
};

const Agreed& agreed() {
  static const Agreed once;
  return once;
}

TEST_CASE("the classes of all code points are PCRE2's") {
  CHECK(agreed().n_different == 0);
  CHECK(agreed().n_unknown < 10'000);
  CHECK(agreed().points[static_cast<u32>(CharClass::letter)].size() > 120'000);
  CHECK(agreed().points[static_cast<u32>(CharClass::number)].size() > 1'500);
  CHECK(agreed().points[static_cast<u32>(CharClass::space)].size() == 25);
  MESSAGE(agreed().n_unknown << " code points are in one of the two Unicode versions only");
}

std::string random_text(test::Random& random) {
  constexpr std::string_view kSigns = "'''''  \n\r\t.,!?-_/(){}[]<>=+*\"`~@#$%^&|\\:;";
  constexpr std::string_view kTails[] = {"s",  "S",  "t", "re", "RE", "vE",
                                         "ll", "Ll", "l", "d",  "M"};
  std::string text;
  const u64 n = 1 + random.below(24);
  for (u64 i = 0; i < n; ++i) {
    const u64 choice = random.below(16);
    const std::vector<u32>& pool = agreed().points[random.below(4)];
    if (choice < 4) text += static_cast<char>('a' + random.below(26));
    if (choice == 4) text += static_cast<char>('A' + random.below(26));
    if (choice == 5 || choice == 6) text += static_cast<char>('0' + random.below(10));
    if (choice == 7 || choice == 8) text += ' ';
    if (choice == 9) text += random.below(2) == 0 ? "\n" : "\r\n";
    if (choice == 10 || choice == 11) text += kSigns[random.below(kSigns.size())];
    if (choice == 12) text += "'" + std::string(kTails[random.below(std::size(kTails))]);
    if (choice == 13) text += static_cast<char>(random.below(128));
    if (choice > 13) text += utf8(pool[random.below(pool.size())]);
  }
  return text;
}

struct Family {
  PreTokenizer pre;
  const char* pattern;
};

constexpr Family kFamilies[] = {
    {PreTokenizer::gpt2,
     "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"},
    {PreTokenizer::llama_bpe,
     "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
     "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
    {PreTokenizer::qwen2,
     "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
     "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},
};

u64 scale() {
  const char* text = std::getenv("TARN_TEST_SCALE");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

TEST_CASE("PCRE2 agrees with the splitters") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const Regex regexes[] = {Regex(kFamilies[0].pattern), Regex(kFamilies[1].pattern),
                           Regex(kFamilies[2].pattern)};
  const u64 n = 100'000 * scale();
  u64 n_pieces = 0;
  for (u64 i = 0; i < n; ++i) {
    const std::string text = random_text(random);
    for (u32 family = 0; family < std::size(kFamilies); ++family) {
      Splitter splitter(kFamilies[family].pre, text);
      u64 at = 0;
      for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next(), ++n_pieces) {
        u64 begin = 0, end = 0;
        const bool found = regexes[family].find(text, at, begin, end);
        if (found && begin == at && end == at + piece.size()) {
          at = end;
          continue;
        }
        CAPTURE(text);
        CAPTURE(family);
        CAPTURE(at);
        CAPTURE(end);
        FAIL("PCRE2 cuts elsewhere");
      }
      REQUIRE(at == text.size());
    }
  }
  MESSAGE(n << " strings, " << n_pieces << " pieces");
}

}  // namespace
}  // namespace tarn::text::splitter_pcre2_test
#endif
