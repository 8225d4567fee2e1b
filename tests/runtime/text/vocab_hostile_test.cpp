// Goal    a vocabulary that contradicts itself is refused for its own reason, one that is merely
//         odd is read as the contract says, and nothing that a file holds breaks more than itself.
// Method  a sound BPE and a sound SPM, each bent in one way, with the status and the hint that must
//         come (ROBUSTNESS G5, G6, T4); then random bytes changed in sound images, built and used.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "runtime/text/tables.h"
#include "tests/runtime/text/test_vocab.h"
#include "tests/runtime/text/vocabs.h"
#include "tests/support/seed.h"

namespace tarn::text::vocab_hostile_test {
namespace {

using test::GgufId;
using test::GgufImage;

TestVocab sound_bpe() {
  TestVocab vocab = TestVocab::begin("llama-bpe");
  vocab.add_merge("a", "b");
  vocab.add_merge("ab", "c");
  vocab.bos = vocab.add("<bos>", TokenKind::control);
  vocab.eos = vocab.add("</s>", TokenKind::control);
  vocab.add("<tool>", TokenKind::user_defined);
  vocab.adds_bos = true;
  return vocab;
}

TestVocab sound_spm() {
  TestVocab vocab = TestVocab::begin("");
  vocab.add("\u2581", TokenKind::normal, -3.0f);
  vocab.add("a", TokenKind::normal, -4.0f);
  vocab.add("\u2581a", TokenKind::normal, -1.0f);
  vocab.adds_bos = true;
  return vocab;
}

constexpr char kModel[] = "tokenizer.ggml.model", kPre[] = "tokenizer.ggml.pre";
constexpr char kTokens[] = "tokenizer.ggml.tokens", kMerges[] = "tokenizer.ggml.merges";
constexpr char kScores[] = "tokenizer.ggml.scores", kKinds[] = "tokenizer.ggml.token_type";
constexpr char kBos[] = "tokenizer.ggml.bos_token_id", kEos[] = "tokenizer.ggml.eos_token_id";
constexpr char kAddBos[] = "tokenizer.ggml.add_bos_token";

const std::string kMissing = "the file has no vocabulary: a key is missing";
const std::string kNotStrings = "this key must be an array of strings";
const std::string kNotEach = "an array about the tokens does not have one element for each";
const std::string kNotTokens = "a part of a merge, or its result, is not a token";
const std::string kBadByte = "a byte token's text is not <0x00> to <0xFF>";
const std::string kFine = "no error";

struct Case {
  std::string name;
  GgufImage image;
  std::string hint;
  Status status = Status::invalid_model;
};

class Cases {
 public:
  template <class Bend>
  void bpe(const std::string& name, const std::string& hint, Bend&& bend,
           Status status = Status::invalid_model) {
    add("bpe: " + name, sound_bpe(), hint, bend, status);
  }
  template <class Bend>
  void spm(const std::string& name, const std::string& hint, Bend&& bend,
           Status status = Status::invalid_model) {
    add("spm: " + name, sound_spm(), hint, bend, status);
  }
  std::vector<Case> all{};

 private:
  // Bends the vocabulary or its image, whatever the function takes.
  template <class Bend>
  void add(const std::string& name, TestVocab vocab, const std::string& hint, Bend&& bend,
           Status status) {
    if constexpr (std::is_invocable_v<Bend, TestVocab&>) {
      bend(vocab);
      all.push_back({name, vocab.image(), hint, status});
    } else {
      GgufImage image = vocab.image();
      bend(image);
      all.push_back({name, image, hint, status});
    }
  }
};

void add_key_cases(Cases& cases) {
  const Status unsupported = Status::unsupported;
  const auto without = [](const char* key) { return [=](GgufImage& i) { i.erase_key(key); }; };
  cases.bpe("no model", kMissing, without(kModel));
  cases.bpe("no tokens", kMissing, without(kTokens));
  cases.bpe("no merges", kMissing, without(kMerges));
  cases.bpe("no pre-tokenizer", kFine, without(kPre));
  cases.bpe("an empty pre-tokenizer", kFine, [](GgufImage& i) { i.set_string(kPre, ""); });
  const std::string unknown_pre =
      "this pre-tokenizer (tokenizer.ggml.pre) is not known; known are nearly all of llama.cpp's, "
      "such as gpt-2, llama-bpe, qwen2, tekken and gpt-4o";
  for (const char* pre : {"GPT-2", "gpt-2 ", "chameleon", "whitespace", "jina-v2-de", "x\x1b[2J"}) {
    cases.bpe(
        std::string("pre-tokenizer ") + pre, unknown_pre,
        [=](GgufImage& i) { i.set_string(kPre, pre); }, unsupported);
  }
  for (const char* model : {"", "bert", "t5", "rwkv", "GPT2", "llama\x1b[2J"}) {
    cases.bpe(
        std::string("model ") + model,
        "tokenizer.ggml.model is none of: llama (SPM), gpt2 (byte-level BPE), gemma4 (BPE of "
        "characters)",
        [=](GgufImage& i) { i.set_string(kModel, model); }, unsupported);
  }
  const std::string long_name(200, 'x');
  cases.bpe("a long model name", "the key's text is too long",
            [=](GgufImage& i) { i.set_string(kModel, long_name); });
  cases.bpe("a long pre-tokenizer", "the key's text is too long",
            [=](GgufImage& i) { i.set_string(kPre, long_name); });
  cases.bpe("model is a number", "the key has the wrong type; it must be a text",
            [](GgufImage& i) { i.set_u32(kModel, 1); });
  cases.bpe("pre-tokenizer is a flag", "the key has the wrong type; it must be a text",
            [](GgufImage& i) { i.set_bool(kPre, true); });
  for (const char* key : {kTokens, kMerges}) {
    cases.bpe(std::string(key) + " is a text", kNotStrings,
              [=](GgufImage& i) { i.set_string(key, "a b"); });
    cases.bpe(std::string(key) + " are numbers", kNotStrings, [=](GgufImage& i) {
      i.set_u32s(key, {1, 2});
    });
  }
  cases.bpe("add_bos is a number", "the key has the wrong type; it must be a boolean",
            [](GgufImage& i) { i.set_u32(kAddBos, 1); });
  cases.bpe("a long general.name", kFine,
            [=](GgufImage& i) { i.set_string("general.name", long_name); });
  cases.bpe("general.name is a number", kFine, [](GgufImage& i) { i.set_u32("general.name", 3); });
  cases.bpe("general.name has a zero byte", kFine,
            [](GgufImage& i) { i.set_string("general.name", std::string_view("phi-3\0", 6)); });
  cases.bpe("scores do not matter to a BPE", kFine,
            [](GgufImage& i) { i.set_string(kScores, "none"); });
  cases.spm("merges do not matter to an SPM", kFine,
            [](GgufImage& i) { i.set_strings(kMerges, {"x"}); });
  cases.spm("a pre-tokenizer does not matter to an SPM", kFine,
            [](GgufImage& i) { i.set_string(kPre, "default"); });
}

void add_token_cases(Cases& cases) {
  cases.spm("no token at all", "the number of tokens is out of range",
            [](GgufImage& i) { i.set_strings(kTokens, {}); });
  cases.spm("a repeated token", "two tokens have the same text", [](TestVocab& v) { v.add("a"); });
  cases.bpe("a repeated token", "two tokens have the same text", [](TestVocab& v) { v.add("ab"); });
  cases.spm("a token too long", "a token is longer than any in use",
            [](TestVocab& v) { v.add(std::string(VocabLimits::kTokenBytesMax + 1, 'x')); });
  cases.spm("the longest token", kFine,
            [](TestVocab& v) { v.add(std::string(VocabLimits::kTokenBytesMax, 'x')); });
  cases.spm("empty tokens", kFine, [](TestVocab& v) {
    v.add("");
    v.add("");
    v.add("", TokenKind::control);
  });
  cases.spm("tokens that are no UTF-8", kFine, [](TestVocab& v) {
    v.add("\xff\xfe");
    v.add(std::string("\0\0", 2));
    v.add("\xe2\x96", TokenKind::user_defined);
  });
  for (const char* text :
       {"<0x-1>", "<0x1>", "<0x+1>", "<0x0g>", "0x41", "<0x41", "<0x041>", "<<", "xx"}) {
    cases.spm(std::string("byte token ") + text, kBadByte,
              [=](TestVocab& v) { v.add(text, TokenKind::byte); });
    cases.bpe(std::string("byte token ") + text, kBadByte,
              [=](TestVocab& v) { v.add(text, TokenKind::byte); });
  }
  cases.spm("an empty byte token", kBadByte, [](TestVocab& v) { v.add("", TokenKind::byte); });
  cases.spm("a byte in small letters", kFine,
            [](TestVocab& v) { v.add("<0xab>", TokenKind::byte); });
  for (const i32 kind : {-1, 7, 100, std::numeric_limits<i32>::min()}) {
    cases.spm("type " + std::to_string(kind), "a token's type is none of GGUF's",
              [=](TestVocab& v) { v.kinds[5] = kind; });
  }
  cases.spm("type 0", kFine, [](TestVocab& v) { v.kinds.back() = 0; });
  cases.spm("a score that is no number", "a token's score is not a number",
            [](TestVocab& v) { v.scores.back() = std::nanf(""); });
  cases.spm("infinite scores", kFine, [](TestVocab& v) {
    v.scores.back() = std::numeric_limits<f32>::infinity();
    v.scores[4] = -std::numeric_limits<f32>::infinity();
  });
  cases.spm("scores that are integers", kFine, [](GgufImage& i) {
    i.set_i32s(kScores, std::vector<i32>(sound_spm().texts.size(), -3));
  });
  cases.spm("no scores, no types", kFine, [](GgufImage& i) {
    i.erase_key(kScores);
    i.erase_key(kKinds);
  });
  for (const char* key : {kScores, kKinds}) {
    const std::string name = key;
    cases.spm(name + " is short", kNotEach, [=](GgufImage& i) { i.set_i32s(key, {1, 2, 3}); });
    cases.spm(name + " is long", kNotEach,
              [=](GgufImage& i) { i.set_i32s(key, std::vector<i32>(1000, 1)); });
    cases.spm(name + " is a number", "this key must be an array",
              [=](GgufImage& i) { i.set_u32(key, 1); });
  }
}

void add_merge_cases(Cases& cases) {
  const auto merge = [](const std::string& text) {
    return [=](TestVocab& v) { v.merges.push_back(text); };
  };
  const std::string not_two = "a merge is not two texts with a space between";
  for (const char* text : {"", "a", " ", " b", "ab"}) {
    cases.bpe(std::string("merge '") + text + "'", not_two, merge(text));
  }
  for (const char* text : {"a ", "a x", "zz a", "a zz", "b a", "a  b", "a b c", "  a"}) {
    cases.bpe(std::string("merge '") + text + "'", kNotTokens, merge(text));
  }
  cases.bpe("a merge of huge texts", kNotTokens,
            merge(std::string(9000, 'a') + " " + std::string(9000, 'b')));
  cases.bpe("a repeated merge", kFine, merge("a b"));
  cases.bpe("a merge that gives a control token", kFine, [](TestVocab& v) {
    v.add("ba", TokenKind::control);
    v.merges.push_back("b a");
  });
  cases.bpe("no merges", kFine, [](TestVocab& v) { v.merges.clear(); });
  cases.bpe("an end token that merges give", kFine, [](TestVocab& v) {
    for (const char* text : {"<E", "OT", "<EOT"}) v.add(text);
    v.merges.insert(v.merges.end(), {"< E", "O T", "<E OT"});
    v.add_merge("<EOT", ">");
  });
}

void add_special_cases(Cases& cases) {
  const std::string no_bos = "texts are to begin with BOS, but the file names no such token";
  const std::string no_eos = "texts are to end with EOS, but the file names no such token";
  cases.bpe("no BOS to add", no_bos, [](TestVocab& v) { v.bos.reset(); });
  cases.bpe("a BOS past the end", no_bos, [](TestVocab& v) { v.bos = 100'000; });
  cases.bpe("a BOS of -1", no_bos, [](TestVocab& v) { v.bos = ~0u; });
  cases.bpe("llama-bpe adds BOS unasked", no_bos, [](GgufImage& i) {
    i.erase_key(kAddBos);
    i.erase_key(kBos);
  });
  cases.bpe("no EOS to add", no_eos, [](TestVocab& v) {
    v.eos.reset();
    v.adds_eos = true;
  });
  cases.bpe("no BOS and none to add", kFine, [](TestVocab& v) {
    v.bos.reset();
    v.adds_bos = false;
  });
  cases.spm("special ids past the end: the family's", kFine, [](GgufImage& i) {
    i.set_u32(kBos, ~0u);
    i.set_u64(kEos, ~u64{0});
    i.set_u32("tokenizer.ggml.unknown_token_id", 1'000'000);
    i.set_u32("tokenizer.ggml.eot_token_id", 1'000'000);
  });
  cases.spm("a BOS that is a text", "the key has the wrong type; it must be an integer",
            [](GgufImage& i) { i.set_string(kBos, "<s>"); });
  cases.spm("two tokens, so no family's EOS", kFine, [](GgufImage& i) {
    i.set_strings(kTokens, {"a", "b"});
    for (const char* key : {kScores, kKinds, kBos, kEos}) i.erase_key(key);
  });
  cases.spm("one token, so no family's BOS", no_bos, [](GgufImage& i) {
    i.set_strings(kTokens, {"a"});
    for (const char* key : {kScores, kKinds, kBos, kEos}) i.erase_key(key);
  });
}

std::vector<Case> all_cases() {
  Cases cases;
  cases.bpe("as it is", kFine, [](GgufImage&) {});
  cases.spm("as it is", kFine, [](GgufImage&) {});
  add_key_cases(cases);
  add_token_cases(cases);
  add_merge_cases(cases);
  add_special_cases(cases);
  return cases.all;
}

// Uses whatever was built: no sanitizer may find anything.
void use(const Tokenizer& tokenizer) {
  for (const char* text :
       {"", "abc ab<tool>a a", "<bos></s>\xff\xe2\x96\x81 <s> \n\n aaaaaaaaaaaa"}) {
    const auto ids = encode(tokenizer, text, {.add_special = true, .parse_special = true});
    if (!ids) CHECK(ids.error().status == Status::invalid_request);
    if (ids) shown(tokenizer, *ids);
  }
  Ids all(tokenizer.n_vocab());
  for (u32 id = 0; id < all.size(); ++id) all[id] = id;
  pieces(tokenizer, all, true);
  shown(tokenizer, all);
}

TEST_CASE("each bent vocabulary gets its own answer") {
  const std::vector<Case> cases = all_cases();
  CHECK(cases.size() >= 100);
  for (const Case& c : cases) {
    CAPTURE(c.name);
    const VocabFile built(c.image);
    CHECK(hint_of(built.tokenizer) == c.hint);
    if (!built.tokenizer) CHECK(built.tokenizer.error().status == c.status);
    if (built.tokenizer) use(*built.tokenizer);
  }
}

TEST_CASE("images with random bytes changed are refused or usable") {
  test::Random random(test::seed_from_environment());
  CAPTURE(random.seed());
  const test::Bytes images[] = {sound_bpe().image().bytes(), sound_spm().image().bytes()};
  u32 n_usable = 0;
  for (u32 round = 0; round < 1'500; ++round) {
    test::Bytes bytes = images[round % 2];
    for (u64 n = 1 + random.below(3); n > 0; --n) {
      bytes[random.below(bytes.size())] = static_cast<std::byte>(random.below(256));
    }
    const VocabFile built(bytes);
    if (!built.tokenizer) continue;
    n_usable += 1;
    use(*built.tokenizer);
  }
  CHECK(n_usable > 40);
}

TEST_CASE("a region one byte short is refused, with both figures") {
  for (const TestVocab& vocab : {sound_bpe(), sound_spm()}) {
    VocabFile built(vocab.image());
    REQUIRE(built.tokenizer.has_value());
    const auto region = std::span(built.region);
    const auto refused = Tokenizer::build(built.file, region.first(region.size() - 1));
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().status == Status::over_budget);
    CHECK(refused.error().figures[0].value + 1 == refused.error().figures[1].value);
  }
}

}  // namespace
}  // namespace tarn::text::vocab_hostile_test
