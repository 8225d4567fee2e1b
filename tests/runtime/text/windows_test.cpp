// Goal    a text that is encoded in windows gives the ids of one pass, wherever it is cut; one that
//         cannot be cut is refused by a sentence.
// Method  random texts (all of Unicode, stray bytes, special tokens, runs) under every family's
//         rules, with scratch for windows of a few hundred bytes against scratch for all; special
//         tokens that overlap in long chains; runs that tokens join everywhere.
#include "runtime/text/encode.h"

#include <doctest/doctest.h>

#include "tests/runtime/text/golden_vocab.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/seed.h"
#include "tests/support/slow_build.h"

namespace tarn::text::windows_test {
namespace {

constexpr const char* kFamilies[] = {"llama", "gpt-2", "llama-bpe", "qwen2"};

Result<Ids> encode_in_windows(const Tokenizer& tokenizer, std::string_view text,
                              EncodeOptions options, u64 window_bytes) {
  std::vector<std::byte> scratch(plain_bytes(window_bytes));
  Ids ids(Tokenizer::encode_ids_max(text.size()));
  auto n = tokenizer.encode(text, options, scratch, ids);
  if (!n) return fail(n.error());
  ids.resize(*n);
  return ids;
}

std::string repeated(std::string_view text, u64 n) {
  std::string all;
  for (u64 i = 0; i < n; ++i) all += text;
  return all;
}

// Words as in prose, with something else between some of them.
std::string random_text(test::Random& random, const TestVocab& vocab, u64 n_bytes) {
  constexpr std::string_view kWords[] = {" the",  " name", "re, ", "\u4e2d\u6587", "\u3002",
                                         "данны", " it's", "\n",   "99",           "\r\n\r\n",
                                         "  ",    "HE'LL", ".)",   "aaaa",         "\u00e9"};
  std::string text;
  while (text.size() < n_bytes) {
    const u64 choice = random.below(40);
    const u64 n = 1 + random.below(random.below(4) == 0 ? 60 : 4);
    if (choice < 30) text += kWords[random.below(std::size(kWords))];
    if (choice == 30 || choice == 31) text += utf8_of(static_cast<u32>(random.below(0x110000)));
    if (choice == 32) text += utf8_of(static_cast<u32>(random.below(0x3000)));
    if (choice == 33) text += static_cast<char>(random.below(256));
    if (choice == 34) text += repeated(std::string(1, "a =\n\x80\xe4"[random.below(6)]), n);
    if (choice == 35) text += repeated(utf8_of(static_cast<u32>(random.below(0x10000))), n);
    if (choice > 35) text += vocab.texts[vocab.texts.size() - 1 - random.below(12)];
  }
  return text;
}

TEST_CASE("ids do not depend on the window") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const char* family : kFamilies) {
    CAPTURE(family);
    TestVocab vocab = golden_vocab(family);
    vocab.add("<think>", TokenKind::user_defined);
    const VocabFile built(vocab.image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    u32 n_equal = 0, n_refused = 0;
    for (u32 round = 0; round < (test::kSlowBuild ? 30 : 300); ++round) {
      const std::string text = random_text(random, vocab, random.below(6000));
      EncodeOptions options{.add_special = random.below(2) == 0,
                            .parse_special = random.below(2) == 0};
      std::vector<u8> origins;
      while (origins.size() < text.size()) {
        origins.insert(origins.end(), random.below(200), static_cast<u8>(random.below(2)));
      }
      origins.resize(text.size());
      if (random.below(2) == 0) options.origins = origins;
      CAPTURE(text);
      const auto whole = encode(*built.tokenizer, text, options);
      REQUIRE(hint_of(whole) == "no error");
      for (const u64 window_bytes : {150u, 400u, 1000u, 3000u}) {
        CAPTURE(window_bytes);
        const auto ids = encode_in_windows(*built.tokenizer, text, options, window_bytes);
        const bool must_be_cut = hint_of(ids).starts_with("a run of the text");
        n_refused += must_be_cut ? 1 : 0;
        if (must_be_cut && window_bytes < 1000) continue;  // a run of its own
        REQUIRE(hint_of(ids) == "no error");
        REQUIRE(*ids == *whole);
        n_equal += 1;
      }
    }
    CHECK(n_refused < n_equal / 4);
  }
}

TEST_CASE("special tokens that overlap for ever are taken as in one pass") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const char* pre : {"", "qwen2", "gemma4"}) {
    TestVocab vocab = TestVocab::begin(pre);
    for (const u32 n : {3u, 4u, 5u, 8u, 12u}) {  // as Gemma's
      vocab.add(std::string(n, '\n'), TokenKind::user_defined);
    }
    for (const char* text : {"xyx", "yxy", "xx", "yyxx", "xyxyxy", "yyy", "xxyxx"}) {
      vocab.add(text, TokenKind::user_defined);
    }
    const VocabFile built(vocab.image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const SlowTokenizer slow(vocab);
    for (u32 round = 0; round < 400; ++round) {
      std::string text;
      while (text.size() < 400) {
        const u64 n = 1 + random.below(round % 2 == 0 ? 3 : 80);
        text += repeated(std::array{"x", "y", "\n", "xy", "xxy"}[random.below(5)], n);
        if (random.below(8) == 0) text += "a";
      }
      CAPTURE(text);
      const Ids want = slow.encode(text, {});
      for (const u64 window_bytes : {100u, 200u, 700u}) {
        CAPTURE(window_bytes);
        const auto ids = encode_in_windows(*built.tokenizer, text, {}, window_bytes);
        REQUIRE(hint_of(ids) == "no error");
        REQUIRE(*ids == want);
      }
    }
    const std::string lines(100'000, '\n');
    const auto ids = encode_in_windows(*built.tokenizer, lines, {}, 200);
    REQUIRE(hint_of(ids) == "no error");
    CHECK(*ids == *encode(*built.tokenizer, lines));
  }
}

TEST_CASE("a long text is cut at words, and a run that tokens join between two of them") {
  for (const char* family : kFamilies) {
    CAPTURE(family);
    TestVocab vocab = golden_vocab(family);
    const VocabFile built(vocab.image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const auto encoded = [&](const std::string& text) {
      return encode_in_windows(*built.tokenizer, text, {}, 600);
    };
    const std::string words = repeated(" the name", 5000);
    CHECK(*encoded(words) == *encode(*built.tokenizer, words));
    const std::string word = repeated("xq", 5000);  // no token joins these
    CHECK(*encoded(word) == *encode(*built.tokenizer, word));
    for (const char* run : {"a", "aa", "\n", " ", "-", "ab", "\xC3\xA9", "\xE4\xB8\xAD",
                            "\xF0\x9F\x98\x80", "\xFF", "aaab", "the", " a"}) {
      CAPTURE(run);
      for (const u32 n : {250u, 2000u, 20'001u}) {
        const std::string text = "x" + repeated(run, n) + "y";
        const auto ids = encoded(text);
        REQUIRE(hint_of(ids) == "no error");
        CHECK(*ids == *encode(*built.tokenizer, text));
      }
    }
  }
}

TEST_CASE("a line is cut as a word, where merges are of characters") {
  TestVocab vocab = TestVocab::begin("gemma4");
  for (const char* text : {"a", "\u00e9", "\u2581"}) {
    for (const u32 n : {1u, 2u, 4u}) vocab.add_merge(repeated(text, n), repeated(text, n));
  }
  vocab.add_merge("\u2581", "a");
  const VocabFile built(vocab.image());
  REQUIRE(hint_of(built.tokenizer) == "no error");
  for (const char* run : {"a", " ", "\u00e9", " a", "\u4e2d", "\xFF", "aaab", "\na", "ab c"}) {
    CAPTURE(run);
    const std::string text = "x" + repeated(run, 20'001) + "y";
    const auto ids = encode_in_windows(*built.tokenizer, text, {}, 600);
    REQUIRE(hint_of(ids) == "no error");
    CHECK(*ids == *encode(*built.tokenizer, text));
  }
}

TEST_CASE("no token that ends behind a window is cut") {
  for (const char* family : kFamilies) {
    CAPTURE(family);
    const VocabFile built(golden_vocab(family).image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const Tokenizer::Tables& tables = built.tokenizer->tables();
    for (u64 n_run = 100; n_run < 150; ++n_run) {
      for (TokenId id = 259; id < tables.n_vocab; id += 3) {
        const std::string text = std::string(n_run, 'a') + pieces(*built.tokenizer, {id, id});
        CAPTURE(text);
        const auto ids = encode_in_windows(*built.tokenizer, text, {}, 130);
        if (ids) REQUIRE(*ids == *encode(*built.tokenizer, text));
      }
    }
  }
}

}  // namespace
}  // namespace tarn::text::windows_test
