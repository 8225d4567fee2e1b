// Goal    what is shown is well-formed UTF-8 after every token, and in the end all of it; a
//         character that is cut over tokens appears once it is whole; the encoder's space is not
//         shown.
// Method  a table of byte sequences from Unicode 15, table 3-8 and around it, one byte a token;
//         random bytes against a decoder written from table 3-7; random ids.
#include <doctest/doctest.h>

#include "tests/runtime/text/test_vocab.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/seed.h"

namespace tarn::text::detokenizer_test {
namespace {

// Bytes of the longest well-formed beginning of a character at `at`; `whole`: it is a character.
u64 well_formed(std::string_view text, u64 at, bool& whole) {
  struct Row {
    u8 first_low, first_high, second_low, second_high, n_bytes;
  };
  constexpr Row kRows[] = {
      {0x00, 0x7F, 0x00, 0x00, 1}, {0xC2, 0xDF, 0x80, 0xBF, 2}, {0xE0, 0xE0, 0xA0, 0xBF, 3},
      {0xE1, 0xEC, 0x80, 0xBF, 3}, {0xED, 0xED, 0x80, 0x9F, 3}, {0xEE, 0xEF, 0x80, 0xBF, 3},
      {0xF0, 0xF0, 0x90, 0xBF, 4}, {0xF1, 0xF3, 0x80, 0xBF, 4}, {0xF4, 0xF4, 0x80, 0x8F, 4}};
  whole = false;
  const auto byte = [&](u64 i) { return at + i < text.size() ? static_cast<u8>(text[at + i]) : 0; };
  for (const Row& row : kRows) {
    if (byte(0) < row.first_low || byte(0) > row.first_high) continue;
    u64 n = 1;
    if (row.n_bytes > 1 && byte(1) >= row.second_low && byte(1) <= row.second_high) n = 2;
    while (n >= 2 && n < row.n_bytes && byte(n) >= 0x80 && byte(n) <= 0xBF) ++n;
    whole = n == row.n_bytes;
    return n;
  }
  return 1;
}

std::string repaired(std::string_view text) {
  std::string out;
  for (u64 at = 0; at < text.size();) {
    bool whole = false;
    const u64 n = well_formed(text, at, whole);
    out += whole ? std::string(text.substr(at, n)) : "\uFFFD";
    at += n;
  }
  return out;
}

bool is_well_formed(std::string_view text) {
  for (u64 at = 0; at < text.size();) {
    bool whole = false;
    at += well_formed(text, at, whole);
    if (!whole) return false;
  }
  return true;
}

// Token n is byte n.
TestVocab bytes_vocab() { return TestVocab::begin("gpt-2"); }

Ids ids_of_bytes(std::string_view bytes) {
  Ids ids;
  for (const char c : bytes) ids.push_back(static_cast<u8>(c));
  return ids;
}

struct Case {
  std::string_view bytes, shown;
};

// clang-format off
constexpr Case kCases[] = {
    {"", ""},
    {"abc", "abc"},
    {"\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x98\x80", "é中😀"},
    {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
    {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
    {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\x41\uFFFD\uFFFD\x42"},
    {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\x41"},
    {"\xF4\x8F\xBF\xBF\xF4\x90\x80\x80", "\U0010FFFF\uFFFD\uFFFD\uFFFD\uFFFD"},
    {"a\xF0\x9F\x98", "a\uFFFD"},
    {"\xE4\xB8", "\uFFFD"},
    {"\x80", "\uFFFD"},
};
// clang-format on

TEST_CASE("bytes that come one token at a time") {
  const VocabFile built(bytes_vocab().image());
  REQUIRE(built.tokenizer.has_value());
  for (const Case& c : kCases) {
    CAPTURE(std::string(c.shown));
    CHECK(repaired(c.bytes) == c.shown);
    CHECK(shown(*built.tokenizer, ids_of_bytes(c.bytes)) == c.shown);
  }
}

TEST_CASE("nothing is shown early, nothing late") {
  const VocabFile built(bytes_vocab().image());
  Detokenizer detokenizer(*built.tokenizer);
  std::vector<char> out(3 * (built.tokenizer->piece_bytes_max() + 4));
  const auto push = [&](u32 id) { return std::string(out.data(), detokenizer.push(id, out)); };
  CHECK(push('a') == "a");
  CHECK(push(0xF0) == "");
  CHECK(push(0x9F) == "");
  CHECK(push(0x98) == "");
  CHECK(push(0x80) == "😀");
  CHECK(push(0xE4) == "");
  CHECK(push('b') ==
        "\uFFFD"
        "b");
  CHECK(push(0xE4) == "");
  CHECK(std::string(out.data(), detokenizer.finish(out)) == "\uFFFD");
  CHECK(detokenizer.finish(out) == 0);
}

TEST_CASE("random ids of random vocabularies are shown well formed") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 round = 0; round < 60; ++round) {
    TestVocab vocab = TestVocab::begin(round % 2 == 0 ? "" : "qwen2");
    for (u32 i = 0; i < 60; ++i) {
      std::string text = " ";
      for (u64 n = random.below(5); n > 0; --n) {
        const u8 byte = static_cast<u8>(random.below(256));
        text += vocab.spm() ? std::string(1, static_cast<char>(byte)) : byte_char(byte);
      }
      const TokenKind kind = static_cast<TokenKind>(random.below(6));
      if (!vocab.find(text)) vocab.add(text, kind);
    }
    const VocabFile built(vocab.image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const Tokenizer& tokenizer = *built.tokenizer;
    Ids ids(200);
    for (TokenId& id : ids) id = static_cast<TokenId>(random.below(tokenizer.n_vocab()));

    std::string whole;
    Detokenizer detokenizer(tokenizer);
    std::vector<char> out(3 * (tokenizer.piece_bytes_max() + 4));
    for (const TokenId id : ids) {
      const std::string part(out.data(), detokenizer.push(id, out));
      REQUIRE(is_well_formed(part));
      whole += part;
    }
    whole.append(out.data(), detokenizer.finish(out));
    CHECK(whole == repaired(pieces(tokenizer, ids)));
  }
}

TEST_CASE("kinds of tokens and what they show") {
  TestVocab vocab = TestVocab::begin("");
  const u32 word = vocab.add("\u2581hi\u2581");
  const u32 user = vocab.add("\u2581u", TokenKind::user_defined);
  const u32 unused = vocab.add("unused", TokenKind::unused);
  const u32 undefined = vocab.add("undefined", TokenKind::undefined);
  const u32 empty = vocab.add("");
  const VocabFile built(vocab.image());
  REQUIRE(hint_of(built.tokenizer) == "no error");
  const Tokenizer& tokenizer = *built.tokenizer;
  CHECK(pieces(tokenizer, {word}) == " hi ");
  CHECK(pieces(tokenizer, {user}) == "\u2581u");
  CHECK(pieces(tokenizer, {unused, undefined, empty}, true) == "");
  CHECK(pieces(tokenizer, {0, 1, 2}) == "");
  CHECK(pieces(tokenizer, {0, 1, 2}, true) == "<unk><s></s>");
  CHECK(pieces(tokenizer, {3 + 0x0A, 3 + 0xFF}) == "\n\xFF");
  CHECK(shown(tokenizer, {1, word, word}) == "hi  hi ");
}

}  // namespace
}  // namespace tarn::text::detokenizer_test
