// Goal    encode() gives the ids that the rules say, for any vocabulary and any bytes, in time that
//         grows with the text, within the lent memory; or an error that names what is missing.
// Method  random small vocabularies and random bytes against a slow tokenizer (test_vocab.h); long
//         words; every size of scratch and output below what is promised; round trips.
#include "runtime/text/tokenizer.h"
#include "runtime/text/tables.h"

#include <doctest/doctest.h>

#include "tests/runtime/text/test_vocab.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/asserts.h"
#include "tests/support/seed.h"
#include "tests/support/slow_build.h"

namespace tarn::text::tokenizer_test {
namespace {

const std::string kFamilies[] = {"", "gpt-2", "llama-bpe", "qwen2", "gemma4"};

// Few letters, so that random words meet the merges; spaces, a character of two bytes, one of
// three.
std::string random_piece(test::Random& random) {
  constexpr std::string_view kPieces[] = {"a",      "b",      "c", "a", "b",  "e",
                                          "\u00e9", "\u4e2d", " ", "1", "'s", "<"};
  return std::string(kPieces[random.below(std::size(kPieces))]);
}

TestVocab random_vocab(test::Random& random, const std::string& pre) {
  TestVocab vocab = TestVocab::begin(pre);
  for (u32 i = 0; i < 40; ++i) {
    if (vocab.spm()) {
      std::string text;
      const u64 n = 1 + random.below(4);
      for (u64 at = 0; at < n; ++at) {
        const std::string piece = random_piece(random);
        text += piece == " " ? "\u2581" : piece;
      }
      const f32 score = -static_cast<f32>(random.below(12));  // ties are frequent
      const u64 kind = random.below(20);
      const TokenKind kinds[] = {TokenKind::control, TokenKind::unused, TokenKind::undefined};
      if (!vocab.find(text)) vocab.add(text, kind < 3 ? kinds[kind] : TokenKind::normal, score);
      continue;
    }
    const auto part = [&] {
      const bool any = random.below(3) == 0;
      const std::string letter(1, static_cast<char>('a' + random.below(3)));
      return any || vocab.texts.size() == 256
                 ? letter
                 : vocab.texts[256 + random.below(vocab.texts.size() - 256)];
    };
    const std::string left = part(), right = part();
    if (left.size() + right.size() < 40) vocab.add_merge(left, right);
  }
  for (const auto& [text, kind] :
       {std::pair("<s1>", TokenKind::control), std::pair("s1><", TokenKind::user_defined),
        std::pair("ab<", TokenKind::control), std::pair("<ab", TokenKind::user_defined),
        std::pair("<a", TokenKind::unknown), std::pair("<<", TokenKind::user_defined),
        std::pair("<b>", TokenKind::user_defined), std::pair("<1>", TokenKind::user_defined)}) {
    if (!vocab.find(text)) vocab.add(text, kind);
  }
  if (!vocab.spm()) {
    vocab.bos = vocab.add("<bos>", TokenKind::control);
    vocab.eos = vocab.add("<e>", TokenKind::control);
  }
  vocab.adds_bos = random.below(2) == 0 || vocab.gemma4();
  vocab.adds_eos = random.below(2) == 0;
  vocab.adds_space_prefix = random.below(3) != 0;
  return vocab;
}

std::string random_text(test::Random& random, const TestVocab& vocab) {
  std::string text;
  const u64 n = random.below(30);
  for (u64 i = 0; i < n; ++i) {
    const u64 choice = random.below(12);
    if (choice < 9) text += random_piece(random);
    if (choice == 9) text += vocab.texts[vocab.texts.size() - 1 - random.below(8)];
    if (choice == 10) text += static_cast<char>(random.below(256));
    if (choice == 11) text += std::string(1 + random.below(20), 'a');
  }
  return text;
}

// Stretches of 0 (empty ones too) between others.
std::vector<u8> random_origins(test::Random& random, u64 n_bytes) {
  std::vector<u8> origins;
  while (origins.size() < n_bytes) {
    origins.insert(origins.end(), random.below(12), static_cast<u8>(random.below(3)));
  }
  origins.resize(n_bytes);
  return origins;
}

TEST_CASE("ids are those of the slow tokenizer") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (u32 round = 0; round < 40; ++round) {
    const TestVocab vocab = random_vocab(random, kFamilies[round % std::size(kFamilies)]);
    CAPTURE(vocab.pre);
    const VocabFile built(vocab.image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const SlowTokenizer slow(vocab);
    for (u32 i = 0; i < 150; ++i) {
      const std::string text = random_text(random, vocab);
      EncodeOptions options{.add_special = random.below(2) == 0,
                            .parse_special = random.below(2) == 0};
      const std::vector<u8> origins = random_origins(random, text.size());
      if (random.below(2) == 0) options.origins = origins;
      CAPTURE(text);
      const auto ids = encode(*built.tokenizer, text, options);
      REQUIRE(hint_of(ids) == "no error");
      REQUIRE(*ids == slow.encode(text, options));
    }
  }
}

// One word of n letters is what makes pair-by-pair loops quadratic; merges of all lengths, so that
// entries go stale and the queue is rebuilt.
TestVocab doubling_vocab(const std::string& pre) {
  TestVocab vocab = TestVocab::begin(pre);
  if (vocab.spm()) {
    vocab.add("a", TokenKind::normal, -1.0f);
    vocab.add("b", TokenKind::normal, -1.0f);
    vocab.add("\u2581", TokenKind::normal, -1.0f);
    vocab.add("ab", TokenKind::normal, 5.0f);
    vocab.add("abc", TokenKind::normal, -8.0f);
    for (const char* text : {"c", "ca", "bc", "cab"}) {
      vocab.add(text, TokenKind::normal, -9.0f);
    }
    for (const u32 n : {2u, 3u, 4u, 8u, 16u}) {
      vocab.add(std::string(n, 'a'), TokenKind::normal, -static_cast<f32>(n % 3));
    }
    return vocab;
  }
  for (const auto& [left, right] : {std::pair("a", "b"), std::pair("c", "a"), std::pair("b", "c"),
                                    std::pair("ab", "c"), std::pair("c", "ab")}) {
    vocab.add_merge(left, right);
  }
  for (const u32 n : {1u, 2u, 4u, 8u}) vocab.add_merge(std::string(n, 'a'), std::string(n, 'a'));
  vocab.add_merge("aa", "a");
  vocab.add_merge("b", "aaaa");
  return vocab;
}

TEST_CASE("long words give the ids of the slow tokenizer") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const std::string& pre : kFamilies) {
    const TestVocab vocab = doubling_vocab(pre);
    const VocabFile built(vocab.image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const SlowTokenizer slow(vocab);
    for (u32 round = 0; round < 6; ++round) {
      std::string text(200 + random.below(300), 'a');
      for (char& c : text) c = round > 0 && random.below(u64{3} * round) == 0 ? 'b' : c;
      if (round == 5) {  // each merge leaves two entries stale and adds two: the queue overflows
        for (u64 at = 0; at < text.size(); ++at) text[at] = "cab"[at % 3];
      }
      const auto ids = encode(*built.tokenizer, text);
      REQUIRE(ids.has_value());
      CHECK(*ids == slow.encode(text, {}));
    }
  }
}

TEST_CASE("a word of a million letters is encoded at once") {
  for (const std::string& pre : kFamilies) {
    CAPTURE(pre);
    const VocabFile built(doubling_vocab(pre).image());
    REQUIRE(built.tokenizer.has_value());
    for (const char c : {'a', ' ', '\n', '\xff', '0'}) {
      const std::string text(test::kSlowBuild ? 100'000 : 1'000'000, c);
      const auto ids = encode(*built.tokenizer, text);
      REQUIRE(ids.has_value());
      CHECK(pieces(*built.tokenizer, *ids).size() >= text.size());
    }
  }
}

TEST_CASE("what was encoded reads as it was written") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  for (const std::string& pre : kFamilies) {
    TestVocab vocab = doubling_vocab(pre);
    vocab.adds_space_prefix = pre.empty();
    const VocabFile built(vocab.image());
    REQUIRE(built.tokenizer.has_value());
    const Tokenizer& tokenizer = *built.tokenizer;
    for (u32 round = 0; round < 500; ++round) {
      std::string text;
      for (u64 n = random.below(20); n > 0; --n) {
        u32 point = static_cast<u32>(random.below(random.below(2) == 0 ? 0x80 : 0x110000));
        if ((point >= 0xD800 && point < 0xE000) || point == 0x2581) point = 'a';
        text += utf8_of(point);
      }
      CAPTURE(text);
      const auto ids = encode(tokenizer, text);
      REQUIRE(ids.has_value());
      CHECK(shown(tokenizer, *ids) == text);
      const std::string space = tokenizer.tables().adds_space_prefix && !text.empty() ? " " : "";
      CHECK(pieces(tokenizer, *ids) == space + text);
    }
  }
}

TEST_CASE("SPM keeps stray bytes, BPE makes each U+FFFD") {
  const VocabFile spm(doubling_vocab("").image());
  const VocabFile bpe(doubling_vocab("gpt-2").image());
  const std::string text = "a\xff\xc3(\xe4\xb8";
  CHECK(pieces(*spm.tokenizer, *encode(*spm.tokenizer, text)) == " " + text);
  CHECK(pieces(*bpe.tokenizer, *encode(*bpe.tokenizer, text)) == "a\uFFFD\uFFFD(\uFFFD\uFFFD");
  // Overlong forms and surrogates are what they spell, what lies beyond Unicode is nothing.
  CHECK(pieces(*bpe.tokenizer, *encode(*bpe.tokenizer, "\xc1\x81\xe0\x81\x82\xed\xa0\x80")) ==
        "AB\xed\xa0\x80");
  CHECK(pieces(*bpe.tokenizer, *encode(*bpe.tokenizer, "\xf4\x90\x80\x80")) ==
        "\uFFFD\uFFFD\uFFFD\uFFFD");
}

TEST_CASE("too little scratch is refused, too little room is never overrun") {
  for (const std::string& pre : kFamilies) {
    CAPTURE(pre);
    TestVocab vocab = doubling_vocab(pre);
    vocab.add("<t>", TokenKind::user_defined);
    const VocabFile built(vocab.image());
    REQUIRE(built.tokenizer.has_value());
    const std::string text = "aaab <t> \xff\xff" + std::string(20, 'a') + "<t>";
    const auto want = encode(*built.tokenizer, text);
    REQUIRE(want.has_value());
    const u64 scratch_bytes = Tokenizer::encode_scratch_bytes(text.size());
    u32 n_refused = 0, n_done = 0;
    for (u64 n = 0; n <= scratch_bytes; ++n) {
      std::vector<std::byte> scratch(n);  // exactly: a sanitizer guards its end
      Ids ids(Tokenizer::encode_ids_max(text.size()));
      const auto done = built.tokenizer->encode(text, {}, scratch, ids);
      n_done += done ? 1u : 0u;
      n_refused += done ? 0u : 1u;
      if (done) CHECK(*done == want->size());
      if (!done) CHECK(done.error().status == Status::invalid_request);
    }
    CHECK(n_refused > 0);
    CHECK(n_done > 0);
    std::vector<std::byte> scratch(scratch_bytes);
    for (u64 room = 0; room <= want->size(); ++room) {
      Ids ids(room);
      const auto done = built.tokenizer->encode(text, {}, scratch, ids);
      CHECK(*done == want->size());  // what has no room is counted
      CHECK(std::equal(ids.begin(), ids.end(), want->begin()));
    }
  }
}

TEST_CASE("text that a vocabulary cannot encode is refused by name") {
  TestVocab bpe = TestVocab::begin("gpt-2");
  bpe.texts['x'] = "other";
  const VocabFile built(bpe.image());
  REQUIRE(hint_of(built.tokenizer) == "no error");
  CHECK(hint_of(encode(*built.tokenizer, "ay")) == "no error");
  CHECK(*encode(*built.tokenizer, "axy") == *encode(*built.tokenizer, "ay"));  // as llama.cpp

  TestVocab spm;
  spm.add("<s>", TokenKind::control);
  spm.add("a");
  spm.add("\u2581");
  CHECK(VocabFile(spm.image()).tokenizer->tables().unknown == 0);  // the family's default
  auto image = spm.image();
  const VocabFile unknown(image);
  CHECK(*encode(*unknown.tokenizer, "a\u00e9") == Ids{2, 1, 0});

  TestVocab bare;
  bare.adds_space_prefix = false;
  CHECK(hint_of(VocabFile(bare.image()).tokenizer) == "the number of tokens is out of range");
}

TEST_CASE("plain text becomes no token with a meaning") {
  TestVocab spm = TestVocab::begin("");
  for (const char* text : {"<", "s", ">", "<s", "0", "x", "4", "1", "<0", "<0x", "<0x4", "<0x41"}) {
    spm.add(text, TokenKind::normal, -1.0f);
  }
  spm.adds_space_prefix = false;
  const VocabFile built(spm.image());
  REQUIRE(built.tokenizer.has_value());
  CHECK(*encode(*built.tokenizer, "<s>") == Ids{*spm.find("<s"), *spm.find(">")});
  CHECK(*encode(*built.tokenizer, "<s>", {.parse_special = true}) == Ids{1});
  CHECK(*encode(*built.tokenizer, "<0x41>") == Ids{*spm.find("<0x41"), *spm.find(">")});

  TestVocab bpe = TestVocab::begin("llama-bpe");
  bpe.add("ab", TokenKind::control);
  bpe.add_merge("a", "b");
  bpe.add_merge("b", "c");
  const VocabFile words(bpe.image());
  REQUIRE(hint_of(words.tokenizer) == "no error");
  CHECK(*encode(*words.tokenizer, "ab") == Ids{*bpe.find("a"), *bpe.find("b")});
  CHECK(*encode(*words.tokenizer, "ab", {.parse_special = true}) == Ids{*bpe.find("ab")});
  CHECK(*encode(*words.tokenizer, "abc") == Ids{*bpe.find("a"), *bpe.find("bc")});
}

TEST_CASE("what a user wrote becomes no control token and no marker") {
  for (const std::string& pre : kFamilies) {
    CAPTURE(pre);
    TestVocab vocab = TestVocab::begin(pre);
    vocab.adds_space_prefix = false;
    const u32 im = vocab.add("<|im|>", TokenKind::control);
    const u32 pipe = vocab.add("|>", TokenKind::user_defined);
    const u32 think = vocab.add("<think>", TokenKind::user_defined);
    const u32 bold = vocab.add("</b>", TokenKind::user_defined);
    const u32 inst = vocab.add("[I]", TokenKind::user_defined);
    const VocabFile built(vocab.image());
    REQUIRE(hint_of(built.tokenizer) == "no error");
    const auto plain = [&](std::string_view text) {
      Ids ids;
      for (const char c : text) {
        const u8 byte = static_cast<u8>(c);
        if (vocab.gemma4()) ids.push_back(vocab.find(std::string(1, c)).value_or(byte));
        if (!vocab.gemma4()) ids.push_back(vocab.spm() ? 3u + byte : *vocab.find(byte_char(byte)));
      }
      return ids;
    };
    struct Case {
      std::string_view text, origins;  // one digit for each byte
      std::vector<Ids> want;           // parts of the ids
      bool parses = true;
    };
    const Case cases[] = {
        {"<|im|>", "000000", {{im}}},
        {"<|im|>", "000000", {plain("<|im"), {pipe}}, false},
        {"<|im|>", "111111", {plain("<|im"), {pipe}}},
        {"<|im|>", "000001", {plain("<|im"), {pipe}}},
        {"<|im|>", "100000", {plain("<|im"), {pipe}}},
        {"<|im|><|im|>", "000000222222", {{im}, plain("<|im"), {pipe}}},
        {"<think>", "0000000", {{think}}, false},
        {"<think>", "1111111", {plain("<think>")}},
        {"<think>", "0001000", {plain("<think>")}},
        {"</b>[I]", "1111111", {{bold}, plain("[I]")}},
        {"</b>[I]", "1111000", {{bold}, {inst}}, false},
        {"a", "9", {plain("a")}},
    };
    for (const Case& c : cases) {
      CAPTURE(c.text);
      CAPTURE(c.origins);
      std::vector<u8> origins;
      for (const char digit : c.origins) origins.push_back(static_cast<u8>(digit - '0'));
      Ids want;
      for (const Ids& part : c.want) want.insert(want.end(), part.begin(), part.end());
      CHECK(*encode(*built.tokenizer, c.text, {.parse_special = c.parses, .origins = origins}) ==
            want);
      const std::vector<u8> trusted(c.text.size(), 0);
      CHECK(*encode(*built.tokenizer, c.text, {.parse_special = c.parses, .origins = trusted}) ==
            *encode(*built.tokenizer, c.text, {.parse_special = c.parses}));
    }
  }
}

TEST_CASE("white space behind a special token of Phi-3 belongs to it") {
  TestVocab vocab = TestVocab::begin("");
  const u32 end = vocab.add("<|end|>", TokenKind::control);
  vocab.adds_space_prefix = false;
  auto image = vocab.image();
  const std::string text = "<|end|> \n a<s> b";
  const auto ids_of = [&](const test::GgufImage& file) {
    return *encode(*VocabFile(file).tokenizer, text, {.parse_special = true});
  };
  const u32 space = 3 + 0xE2;  // U+2581 has no token here: its bytes
  const Ids mark{space, 3 + 0x96, 3 + 0x81};
  Ids plain{end}, eaten{end, 3 + 'a', 1};
  for (const Ids& part : {mark, Ids{3 + '\n'}, mark, Ids{3 + 'a', 1}, mark, Ids{3 + 'b'}}) {
    plain.insert(plain.end(), part.begin(), part.end());
  }
  eaten.insert(eaten.end(), mark.begin(), mark.end());  // <s> eats none
  eaten.push_back(3 + 'b');
  CHECK(ids_of(image) == plain);
  image.set_string("general.name", "my Phi-3 mini");
  CHECK(ids_of(image) == eaten);
}

TEST_CASE("ids beyond the vocabulary") {
  const VocabFile built(doubling_vocab("gpt-2").image());
  const Tokenizer& tokenizer = *built.tokenizer;
  const u32 n = tokenizer.n_vocab();
  CHECK_FALSE(tokenizer.is_end(n));
  CHECK_FALSE(tokenizer.is_end(kNoToken));
  std::vector<char> piece(tokenizer.piece_bytes_max());
  CHECK(test::asserts([&] { static_cast<void>(tokenizer.piece(n, true, piece)); }));
}

}  // namespace
}  // namespace tarn::text::tokenizer_test
