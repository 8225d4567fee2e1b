// Fuzz target: any bytes as text under each family, against the slow tokenizer; what is shown of
// the ids is the text, as far as it is UTF-8. Any bytes as ids, shown one by one.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/text/unicode.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/runtime/text/test_vocab.h"
#include "tests/runtime/text/vocabs.h"

namespace tarn::text {
namespace {

using test::FuzzInput;

constexpr u64 kSlowBytesMax = 96;  // it is quadratic

TestVocab vocab_of(const std::string& pre) {
  TestVocab vocab = TestVocab::begin(pre);
  const char* const pieces[] = {"th",  "the",  "he", "in", "an",     "and",     "er",
                                "aa",  "aaaa", "ab", "ba", "aba",    "e\u0301", "12",
                                "123", "''",   "'s", "ll", "\u00e9", "\u4e2d"};
  if (vocab.spm()) {
    f32 score = 0.0f;
    for (const char* letter : {"\u2581", "a", "b", "e", "h", "t", "n", "1", "2", "'", "s", "l"}) {
      vocab.add(letter, TokenKind::normal, -10.0f);
    }
    for (const char* piece : pieces) {
      score -= 0.5f;
      if (!vocab.find(piece)) vocab.add(piece, TokenKind::normal, static_cast<f32>(int(score)));
      vocab.add("\u2581" + std::string(piece), TokenKind::normal, score);
    }
  } else {
    const std::string space = byte_char(' '), newline = byte_char('\n');
    const std::pair<std::string, std::string> merges[] = {{"t", "h"},
                                                          {"th", "e"},
                                                          {"h", "e"},
                                                          {space, "the"},
                                                          {"a", "a"},
                                                          {"aa", "aa"},
                                                          {"a", "b"},
                                                          {"b", "a"},
                                                          {"ab", "a"},
                                                          {space, space},
                                                          {space + space, space + space},
                                                          {"1", "2"},
                                                          {"12", "3"},
                                                          {"'", "s"},
                                                          {"l", "l"},
                                                          {"'", "ll"},
                                                          {newline, newline},
                                                          {byte_char(0xC3), byte_char(0xA9)},
                                                          {space, "a"},
                                                          {byte_char(0xEF), byte_char(0xBF)}};
    for (const auto& [left, right] : merges) vocab.add_merge(left, right);
    vocab.bos = vocab.add("<s>", TokenKind::control);
    vocab.eos = vocab.add("</s>", TokenKind::control);
  }
  vocab.add("<t>", TokenKind::user_defined);
  vocab.add("<t><", TokenKind::user_defined);
  vocab.add("t><t", TokenKind::control);
  vocab.add("<<", TokenKind::unknown);
  vocab.adds_bos = true;
  vocab.adds_eos = true;
  return vocab;
}

struct Family {
  explicit Family(const std::string& pre) : vocab(vocab_of(pre)), file(vocab.image()), slow(vocab) {
    if (!file.tokenizer) __builtin_trap();
  }
  TestVocab vocab;
  VocabFile file;
  SlowTokenizer slow;
};

const Family& family(u32 choice) {
  static const Family spm(""), gpt2("gpt-2"), llama("llama-bpe"), qwen2("qwen2");
  const Family* const all[] = {&spm, &gpt2, &llama, &qwen2};
  return *all[choice % 4];
}

bool has_any(std::string_view text, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view part) {
    return text.find(part) != std::string_view::npos;
  });
}

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

}  // namespace
}  // namespace tarn::text

extern "C" int LLVMFuzzerTestOneInput(const tarn::u8* data, size_t n_bytes) {
  using namespace tarn;
  using namespace tarn::text;
  test::FuzzInput input(data, n_bytes);
  const u8 choice = input.number<u8>();
  const EncodeOptions options{.add_special = (choice & 4) != 0, .parse_special = (choice & 8) != 0};
  const Family& used = family(choice);
  const Tokenizer& tokenizer = *used.file.tokenizer;
  const std::string text(input.text(n_bytes));

  const auto ids = encode(tokenizer, text, options);
  expect(ids.has_value());
  if (text.size() <= kSlowBytesMax) expect(*ids == used.slow.encode(text, options));
  // Special tokens are not shown or move an SPM's spaces; U+2581 reads as a space.
  if (is_utf8(text) && !has_any(text, {"<", "\u2581"})) expect(shown(tokenizer, *ids) == text);

  Ids any(text.size());
  for (u64 i = 0; i < any.size(); ++i) {
    any[i] = static_cast<u8>(text[i]) * 7u % tokenizer.n_vocab();
  }
  expect(is_utf8(shown(tokenizer, any)));
  return 0;
}
