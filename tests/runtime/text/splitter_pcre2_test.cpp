// Goal    the hand-written splitters are the regular expressions they stand for; the classes of all
//         code points are those of a second Unicode implementation.
// Method  PCRE2 in UTF mode with the original patterns on generated strings: three families on
//         10^5, each other on some 4,000; ten times as many with TARN_TEST_SCALE=10. (The letters
//         of deepseek-llm are not listed twice: llama.cpp is its oracle.) PCRE2's Unicode may be
//         older or newer than the table's: code points that it does not know, or knows otherwise
//         only because it is newer, take no part.
#include <doctest/doctest.h>

#include "tests/support/skip.h"

#ifndef TARN_HAVE_PCRE2
TEST_CASE("PCRE2 agrees with the splitters") { TARN_SKIP("built without PCRE2 (libpcre2-dev)"); }
#else

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdlib>
#include <memory>
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

  // Where the match that starts at or behind `at` begins and ends; false if there is none. Sees no
  // text before `at`.
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
constexpr u32 kClasses = static_cast<u32>(CharClass::none);
struct Agreed {
  std::vector<u32> points[kClasses];
  u32 n_unknown = 0, n_different = 0;

  Agreed() {
    constexpr const char* kPatterns[kClasses] = {"",        "^\\p{L}", "^\\p{N}", "^\\s",
                                                 "^\\p{P}", "^\\p{S}", "^\\p{M}"};
    std::vector<std::unique_ptr<Regex> > regexes(kClasses);
    for (u32 i = 1; i < kClasses; ++i) regexes[i] = std::make_unique<Regex>(kPatterns[i]);
    const Regex unassigned("^\\p{Cn}");
    const bool newer = pcre2_unicode_major() > 15;
    for (u32 point = 0; point < 0x110000; ++point) {
      if (is_surrogate(point) || point == kMongolianVowelSeparator) continue;
      const std::string text = utf8(point);
      u32 theirs = 0;
      for (u32 i = 1; i < kClasses && theirs == 0; ++i) theirs = regexes[i]->matches(text) ? i : 0;
      const CharClass ours = class_of(point);
      if (ours == static_cast<CharClass>(theirs)) {
        points[theirs].push_back(point);
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
  CHECK(agreed().points[static_cast<u32>(CharClass::punctuation)].size() > 800);
  CHECK(agreed().points[static_cast<u32>(CharClass::symbol)].size() > 7'000);
  CHECK(agreed().points[static_cast<u32>(CharClass::mark)].size() > 2'300);
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
    const std::vector<u32>& pool = agreed().points[random.below(kClasses)];
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

// Stages cut the pieces of the stage before, and what lies between matches is a piece, too.
constexpr u32 kPatternsMax = 6;
struct Family {
  PreTokenizer pre;
  const char* patterns[kPatternsMax];
};

// Parts of the patterns: a contraction, [^\r\n\p{L}\p{N}]?, signs, white space at the end of a line
// or before a text, letters by case, ideographs.
#define CONTRACTION "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"
#define SIGNS " ?[^\\s\\p{L}\\p{N}]+"
#define SPACES "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "(?:(?=\\p{L})[^a-z])"
#define LOWER "(?:(?=\\p{L})[^A-Z])"
#define CASED "(?:" LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER "*)"
#define UPPER_M "(?:(?=[\\p{L}\\p{M}])[^a-z])"
#define LOWER_M "(?:(?=[\\p{L}\\p{M}])[^A-Z])"
#define HAN                                                                         \
  "[\\x{3400}-\\x{4DBF}\\x{4E00}-\\x{9FFF}\\x{F900}-\\x{FAFF}\\x{20000}-\\x{2A6DF}" \
  "\\x{2A700}-\\x{2EBEF}\\x{2F800}-\\x{2FA1F}]"
#define HAN_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{30FF}]+"
#define CJK "(?:(?!\\s)[\\x{800}-\\x{9FA5}\\x{AC00}-\\x{D7FF}])+"  // no wide white space
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+|" SIGNS "|\\s+(?!\\S)|\\s+"
#define QWEN2 CONTRACTION "|" LEAD "\\p{L}+|\\p{N}|" SIGNS "[\\r\\n]*" SPACES
#define DEEPSEEK \
  "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+"
#define BLOOM " ?[^(\\s|.,!?)\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C}]+"
// A number in threes from the right; the text before it belongs to its first piece.
#define THREES "\\P{N}*\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"

constexpr Family kFamilies[] = {
    {PreTokenizer::gpt2, {GPT2}},
    {PreTokenizer::llama_bpe,
     {CONTRACTION "|" LEAD "\\p{L}+|\\p{N}{1,3}|" SIGNS "[\\r\\n]*" SPACES}},
    {PreTokenizer::qwen2, {QWEN2}},
    {PreTokenizer::smollm, {"\\p{N}", GPT2}},
    {PreTokenizer::falcon, {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {PreTokenizer::unnamed, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
    {PreTokenizer::deepseek_coder, {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {PreTokenizer::deepseek_v3,
     {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {PreTokenizer::spark,
     {"\\p{N}{1,3}", HAN_KANA, DEEPSEEK "|[\\r\\n]|\\s+(?!\\S)|\\s+", "\\p{N}"}},
    {PreTokenizer::afmoe,
     {THREES,
      "[\\x{E40}-\\x{EFF}\\x{1000}-\\x{109F}\\x{1100}-\\x{11FF}\\x{1780}-\\x{17FF}"
      "\\x{2F00}-\\x{2FDF}\\x{3040}-\\x{30FF}\\x{3400}-\\x{4DBF}\\x{4E00}-\\x{D7FF}"
      "\\x{E000}-\\x{FAFF}\\x{FF65}-\\x{FF9F}]+",
      DEEPSEEK "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
    {PreTokenizer::youtu,
     {"[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]+|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}"
      "\\x{2018}\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}"
      "\\x{FE30}-\\x{FE4F}]+|[\\x{3105}-\\x{312F}]+|" HAN_KANA,
      LEAD "[\\p{L}\\p{M}]+(?:" CONTRACTION ")?|\\p{N}|" SIGNS "[\\r\\n/]*" SPACES}},
    {PreTokenizer::tiny_aya,
     {THREES, LEAD "[\\p{L}\\p{M}]+(?:" CONTRACTION ")?|\\p{N}{1,3}|" SIGNS "[\\r\\n/]*" SPACES}},
    {PreTokenizer::qwen35,
     {CONTRACTION "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*" SPACES}},
    {PreTokenizer::bloom, {BLOOM}},
    {PreTokenizer::viking, {BLOOM, "\\p{N}"}},
    {PreTokenizer::tekken, {CASED "|\\p{N}|" SIGNS "[\\r\\n/]*" SPACES}},
    {PreTokenizer::gpt4o,
     {LEAD UPPER "*" LOWER "+(?:" CONTRACTION ")?|" LEAD UPPER "+" LOWER "*(?:" CONTRACTION ")?"
                 "|\\p{N}{1,3}|" SIGNS "[\\r\\n/]*" SPACES}},
    {PreTokenizer::granite_embed,
     {LEAD UPPER_M "*" LOWER_M "+(?:" CONTRACTION ")?|" LEAD UPPER_M "+" LOWER_M "*(?:" CONTRACTION
                   ")?|\\p{N}{1,3}|" SIGNS "[\\r\\n/]*" SPACES}},
    {PreTokenizer::kimi_k2,
     {HAN "+|" LEAD "(?:(?!" HAN ")\\p{L})+(?:" CONTRACTION ")?|\\p{N}{1,3}|" SIGNS
          "[\\r\\n]*" SPACES}},
    {PreTokenizer::superbpe, {"\\p{N}+", "(?s).+?(?=(?:[0-9]{3})+(?![0-9]))|.+"}},
    {PreTokenizer::seed_coder,
     {CONTRACTION "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+" SPACES}},
    {PreTokenizer::ufakzeka, {LEAD "\\p{L}+|\\p{N}|" SIGNS "[\\r\\n]*" SPACES}},
    {PreTokenizer::exaone_moe,
     {CONTRACTION "|" LEAD "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" SIGNS
                  "[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"}},
    {PreTokenizer::laguna, {"[^\\n]+|[\\n]+", QWEN2}},
    {PreTokenizer::minicpm5,
     {"\\p{N}{1,3}", CONTRACTION "|" LEAD "\\p{L}+|\\p{N}+|" SIGNS "[\\r\\n]*" SPACES}},
    {PreTokenizer::jais2,
     {CONTRACTION
      "|" LEAD "\\p{L}+|\\p{N}{1,3}|" SIGNS "[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)"
      "|\\s{256}(?!\\S)|\\s{128}(?!\\S)|\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)"
      "|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"}},
    {PreTokenizer::gemma4, {"[^\\n]+|[\\n]+"}},
};

// The ends of the pieces of a text, as its family's expressions cut it.
class Chain {
 public:
  explicit Chain(const Family& family) {
    for (const char* pattern : family.patterns) {
      if (pattern != nullptr) regexes_.push_back(std::make_unique<Regex>(pattern));
    }
  }
  std::vector<u64> ends(std::string_view text) const {
    std::vector<u64> ends;
    if (!text.empty()) ends.push_back(text.size());
    for (const auto& regex : regexes_) {
      std::vector<u64> cut;
      u64 begin = 0;
      for (const u64 end : ends) {
        cut_piece(*regex, text.substr(begin, end - begin), begin, cut);
        begin = end;
      }
      ends = std::move(cut);
    }
    return ends;
  }

 private:
  static void cut_piece(const Regex& regex, std::string_view piece, u64 base,
                        std::vector<u64>& ends) {
    u64 begin = 0, end = 0;
    for (u64 at = 0; at < piece.size(); at = end) {
      if (!regex.find(piece, at, begin, end)) begin = end = piece.size();
      if (begin > at) ends.push_back(base + begin);
      if (end > begin) ends.push_back(base + end);
    }
  }

  std::vector<std::unique_ptr<Regex> > regexes_{};
};

u64 scale() {
  const char* text = std::getenv("TARN_TEST_SCALE");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

TEST_CASE("PCRE2 agrees with the splitters") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  std::vector<Chain> chains;
  for (const Family& family : kFamilies) chains.emplace_back(family);
  const u64 n = 100'000 * scale();
  constexpr u64 kAlways = 3, kOthers = std::size(kFamilies) - kAlways;
  u64 n_pieces = 0;
  for (u64 i = 0; i < n; ++i) {
    const std::string text = random_text(random);
    for (u64 j = 0; j <= kAlways; ++j) {
      const u64 family = j < kAlways ? j : kAlways + i % kOthers;
      std::vector<u64> ends;
      Splitter splitter(kFamilies[family].pre, text);
      for (auto piece = splitter.next(); !piece.empty(); piece = splitter.next()) {
        ends.push_back((ends.empty() ? 0 : ends.back()) + piece.size());
      }
      n_pieces += ends.size();
      if (ends == chains[family].ends(text)) continue;
      CAPTURE(text);
      CAPTURE(family);
      CHECK(ends == chains[family].ends(text));
      FAIL("PCRE2 cuts elsewhere");
    }
  }
  MESSAGE(n << " strings, " << n_pieces << " pieces");
}

}  // namespace
}  // namespace tarn::text::splitter_pcre2_test
#endif
