// Goal    made-up vocabularies can encode any text and are well-formed: what a loader may rely on.
// Method  every family at its real sizes and at the smallest: token counts, uniqueness, all 256
//         bytes, the parts and the result of every merge, the special tokens' real ids.
#include "tools/synth/vocab.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <unordered_map>

namespace tarn::synth::vocab_test {
namespace {

struct Case {
  const char* name;
  VocabFamily family;
  u32 n_tokens;
};
constexpr Case kCases[] = {
    {"llama 2", VocabFamily::spm, 32000},
    {"llama 3.1", VocabFamily::llama_bpe, 128256},
    {"qwen2.5", VocabFamily::qwen2, 152064},
    {"qwen3", VocabFamily::qwen3, 151936},
    {"smallest spm", VocabFamily::spm, kVocabTokensMin},
    {"smallest llama 3", VocabFamily::llama_bpe, kVocabTokensMin},
    {"smallest qwen2", VocabFamily::qwen2, kVocabTokensMin},
    {"odd spm", VocabFamily::spm, 8193},
};

using Index = std::unordered_map<std::string, u32>;

Index index_of(const Vocabulary& vocabulary) {
  Index index;
  for (u32 i = 0; i < vocabulary.tokens.size(); ++i) index.emplace(vocabulary.tokens[i], i);
  return index;
}

// GPT-2's stand-in for a byte, written by its own rule (Radford et al. 2019, encoder.py).
std::string stand_in(u32 byte) {
  const auto printable = [](u32 b) {
    return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || (b >= 174 && b <= 255);
  };
  u32 code_point = byte;
  if (!printable(byte)) {
    code_point = 256;
    for (u32 before = 0; before < byte; ++before) code_point += printable(before) ? 0u : 1u;
  }
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63))};
}

TEST_CASE("every family's vocabulary is well-formed at every size") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Vocabulary vocabulary = make_vocabulary(c.family, c.n_tokens);
    const Index index = index_of(vocabulary);
    CHECK(vocabulary.tokens.size() == c.n_tokens);
    CHECK(vocabulary.kinds.size() == c.n_tokens);
    CHECK(index.size() == c.n_tokens);  // no text twice
    CHECK(vocabulary.eos < c.n_tokens);
    CHECK(vocabulary.bos < c.n_tokens);
    u32 n_missing_bytes = 0;
    for (u32 byte = 0; byte < 256; ++byte) {
      char spm_text[8];
      std::snprintf(spm_text, sizeof spm_text, "<0x%02X>", byte);
      const bool spm = c.family == VocabFamily::spm;
      n_missing_bytes += index.count(spm ? std::string(spm_text) : stand_in(byte)) == 0;
    }
    CHECK(n_missing_bytes == 0);
    if (c.family == VocabFamily::spm) {
      CHECK(vocabulary.scores.size() == c.n_tokens);
      CHECK(std::is_sorted(vocabulary.scores.begin() + 259, vocabulary.scores.end(),
                           std::greater<>()));
    }
  }
}

TEST_CASE("the parts and the result of every merge are tokens, each result once") {
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    const Vocabulary vocabulary = make_vocabulary(c.family, c.n_tokens);
    const Index index = index_of(vocabulary);
    u32 n_bad = 0;
    Index results;
    for (const std::string& merge : vocabulary.merges) {
      const u64 space = merge.find(' ');
      REQUIRE(space != std::string::npos);
      const std::string left = merge.substr(0, space);
      const std::string right = merge.substr(space + 1);
      n_bad += index.count(left) == 0 || index.count(right) == 0 || index.count(left + right) == 0;
      results.emplace(left + right, 0);
    }
    CHECK(n_bad == 0);
    CHECK(results.size() == vocabulary.merges.size());
    if (c.family != VocabFamily::spm) CHECK(vocabulary.merges.size() > 500);
  }
}

TEST_CASE("special tokens stand where the real files have them") {
  const auto llama3 = make_vocabulary(VocabFamily::llama_bpe, 128256);
  CHECK(llama3.tokens[128000] == "<|begin_of_text|>");
  CHECK(llama3.tokens[128009] == "<|eot_id|>");
  CHECK(llama3.tokens[128255] == "<|reserved_special_token_247|>");
  CHECK(llama3.bos == 128000);
  CHECK(llama3.eos == 128009);
  const auto qwen2 = make_vocabulary(VocabFamily::qwen2, 152064);
  CHECK(qwen2.tokens[151643] == "<|endoftext|>");
  CHECK(qwen2.tokens[151645] == "<|im_end|>");
  CHECK(qwen2.tokens[151665] == "[PAD151665]");
  CHECK(qwen2.eos == 151645);
  const auto qwen3 = make_vocabulary(VocabFamily::qwen3, 151936);
  CHECK(qwen3.tokens[151667] == "<think>");
  const auto llama2 = make_vocabulary(VocabFamily::spm, 32000);
  CHECK(llama2.tokens[1] == "<s>");
  CHECK(llama2.tokens[13] == "<0x0A>");
}

TEST_CASE("a vocabulary too small is refused") {
  CHECK_THROWS(make_vocabulary(VocabFamily::spm, kVocabTokensMin - 1));
}

}  // namespace
}  // namespace tarn::synth::vocab_test
