// Goal    what files and custom say about special tokens: BOS and EOS, ends of generation, kinds
//         that the rules change; the aliases of pre-tokenizers; the tables' bounded probes; a
//         vocabulary of full size is built fast.
// Method  small vocabularies with the names in question; tables filled to the brim.
#include <doctest/doctest.h>

#include "platform/clock/clock.h"
#include "runtime/text/known_names.h"
#include "runtime/text/tables.h"
#include "tests/runtime/text/test_vocab.h"
#include "tests/runtime/text/vocabs.h"

namespace tarn::text::vocab_rules_test {
namespace {

// The texts of all tokens that end a generation, in the order of ids.
std::string ends_of(const Tokenizer& tokenizer) {
  std::string out;
  for (u32 id = 0; id < tokenizer.n_vocab(); ++id) {
    if (tokenizer.is_end(id)) out += std::string(tokenizer.tables().texts.at(id));
  }
  return out;
}

struct EndCase {
  const char* name;
  std::vector<std::string> tokens;
  std::string ends;
};

TEST_CASE("which tokens end a generation") {
  const EndCase cases[] = {
      {"none", {"<a>"}, ""},
      {"by name",
       {"<|eot_id|>", "<|eom_id|>", "xx", "<|im_end|>"},
       "<|eot_id|><|eom_id|><|im_end|>"},
      {"fill-in tokens",
       {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"},
       "<|fim_pad|><|repo_name|><|file_sep|>"},
      {"the first of two pads", {"[PAD]", "<fim_pad>"}, "<fim_pad>"},
      {"harmony's end of message", {"<|end|>", "<|return|>", "<|call|>"}, "<|return|><|call|>"},
      {"an end alone", {"<|end|>", "<|call|>"}, "<|end|><|call|>"},
      {"solar's", {"<|end|>", "<|flush|>", "<|calls|>"}, "<|flush|><|calls|>"},
  };
  for (const EndCase& c : cases) {
    CAPTURE(std::string(c.name));
    TestVocab vocab = TestVocab::begin("gpt-2");
    for (const std::string& text : c.tokens) vocab.add(text);
    const VocabFile built(vocab.image());
    REQUIRE(built.tokenizer.has_value());
    CHECK(ends_of(*built.tokenizer) == c.ends);
  }
}

TEST_CASE("keys name ends, later keys win, and names fill what is left") {
  TestVocab vocab = TestVocab::begin("gpt-2");
  const u32 a = vocab.add("<a>"), b = vocab.add("<b>"), c = vocab.add("<c>");
  vocab.add("<|fim_pad|>");
  vocab.eos = a;
  auto image = vocab.image();
  image.set_u32("tokenizer.ggml.eot_token_id", b);
  image.set_u32("tokenizer.ggml.eom_token_id", c);
  image.set_u32("tokenizer.ggml.fim_pad_token_id", c);
  const VocabFile built(image);
  REQUIRE(built.tokenizer.has_value());
  CHECK(ends_of(*built.tokenizer) == "<a><b><c>");  // the pad's place is taken
  CHECK(built.tokenizer->tables().eos == a);
  CHECK(built.tokenizer->tables().bos == kNoToken);
}

TEST_CASE("kinds that names change") {
  TestVocab vocab = TestVocab::begin("gpt-2");
  const u32 end = vocab.add("<|im_end|>");
  const u32 middle = vocab.add("<fim_middle>");
  const u32 start = vocab.add("<|start|>", TokenKind::control);
  const VocabFile built(vocab.image());
  REQUIRE(built.tokenizer.has_value());
  CHECK(built.tokenizer->tables().kind_of(end) == TokenKind::control);
  CHECK(built.tokenizer->tables().kind_of(middle) == TokenKind::control);
  CHECK(built.tokenizer->tables().kind_of(start) == TokenKind::user_defined);
  CHECK(*encode(*built.tokenizer, "<|start|>") == Ids{start});
  CHECK(encode(*built.tokenizer, "<|im_end|>")->size() == 10);
  CHECK(*encode(*built.tokenizer, "<|im_end|>", {.parse_special = true}) == Ids{end});
}

TEST_CASE("BOS and EOS as the family and the file say") {
  TestVocab spm = TestVocab::begin("");
  auto image = spm.image();
  for (const char* key :
       {"bos_token_id", "eos_token_id", "add_bos_token", "add_eos_token", "add_space_prefix"}) {
    image.erase_key(std::string("tokenizer.ggml.") + key);
  }
  const VocabFile built(image);
  REQUIRE(built.tokenizer.has_value());
  CHECK(built.tokenizer->tables().unknown == 0);
  CHECK(built.tokenizer->tables().bos == 1);
  CHECK(built.tokenizer->tables().eos == 2);
  CHECK(built.tokenizer->tables().adds_bos);
  CHECK_FALSE(built.tokenizer->tables().adds_eos);
  CHECK(built.tokenizer->tables().adds_space_prefix);
  CHECK(*encode(*built.tokenizer, "", {.add_special = true}) == Ids{1});
  CHECK(encode(*built.tokenizer, "")->empty());
}

TEST_CASE("Gemma 4 begins with BOS whatever the file says, and its </s> is text") {
  TestVocab vocab = TestVocab::begin("gemma4");
  const u32 turn = vocab.add("<turn|>", TokenKind::control);
  const u32 closing = vocab.add("</s>", TokenKind::control);
  vocab.adds_bos = false;
  const VocabFile alone(vocab.image());
  REQUIRE(hint_of(alone.tokenizer) == "no error");
  CHECK(alone.tokenizer->is_end(closing));
  vocab.add("<|tool_response>", TokenKind::control);
  const VocabFile built(vocab.image());
  REQUIRE(hint_of(built.tokenizer) == "no error");
  CHECK(*encode(*built.tokenizer, "", {.add_special = true}) == Ids{*vocab.bos});
  CHECK(built.tokenizer->is_end(turn));
  CHECK_FALSE(built.tokenizer->is_end(closing));
  CHECK(*encode(*built.tokenizer, "a \u00e9\u00e8\n\n") ==
        Ids{*vocab.find("a"), *vocab.find("\u2581"), *vocab.find("\u00e9"), 0xC3, 0xA8,
            *vocab.find("\n\n")});
  CHECK(shown(*built.tokenizer, {*vocab.find("a"), *vocab.find("\u2581"), 0xC3, 0xA8}) ==
        "a \u00e8");
}

TEST_CASE("aliases of pre-tokenizers") {
  struct Alias {
    const char* name;
    PreTokenizer splitter;
    bool whole_words_first, adds_bos;
  };
  for (const Alias& alias : {Alias{"gpt-2", PreTokenizer::gpt2, false, false},
                             Alias{"phi-2", PreTokenizer::gpt2, false, false},
                             Alias{"llama-bpe", PreTokenizer::llama_bpe, true, true},
                             Alias{"llama3", PreTokenizer::llama_bpe, true, true},
                             Alias{"smaug-bpe", PreTokenizer::llama_bpe, false, false},
                             Alias{"glm4", PreTokenizer::llama_bpe, true, false},
                             Alias{"qwen2", PreTokenizer::qwen2, false, false},
                             Alias{"deepseek-r1-qwen", PreTokenizer::qwen2, false, false},
                             Alias{"smollm", PreTokenizer::smollm, false, false},
                             Alias{"starcoder", PreTokenizer::smollm, false, false},
                             Alias{"tekken", PreTokenizer::tekken, true, true},
                             Alias{"gpt-4o", PreTokenizer::gpt4o, false, false},
                             Alias{"youtu", PreTokenizer::youtu, true, false},
                             Alias{"minicpm5", PreTokenizer::minicpm5, true, false},
                             Alias{"bailingmoe2", PreTokenizer::qwen2, false, false},
                             Alias{"default", PreTokenizer::unnamed, false, false}}) {
    CAPTURE(std::string(alias.name));
    const PreTokenizerRules* rules = find_pre_tokenizer(alias.name);
    REQUIRE(rules != nullptr);
    CHECK(rules->splitter == alias.splitter);
    CHECK(rules->whole_words_first == alias.whole_words_first);
    CHECK(rules->adds_bos == alias.adds_bos);
  }
  for (const char* name : {"", "chameleon", "whitespace", "jina-v2-de", "GPT-2"}) {
    CHECK(find_pre_tokenizer(name) == nullptr);
  }
}

TEST_CASE("full tables refuse, and look-ups in them end") {
  constexpr u32 kSlots = 1024;
  std::vector<Merge> slots(kSlots);
  MergeIndex merges(slots);
  u32 n_crowded = 0;
  for (u32 i = 0; i < 2 * kSlots; ++i) {
    const Merge merge{.left = i, .right = 1, .rank = i, .result = i};
    const Insertion inserted = merges.insert(merge);
    n_crowded += inserted == Insertion::crowded ? 1u : 0u;
    const u32 slot = merges.find(i, 1);
    CHECK((slot != MergeIndex::kNoSlot) == (inserted == Insertion::done));
    if (slot != MergeIndex::kNoSlot) CHECK(merges.at(slot).rank == i);
  }
  CHECK(n_crowded >= kSlots);
  CHECK(merges.insert({.left = 0, .right = 1, .rank = 9, .result = 9}) == Insertion::repeated);
}

TEST_CASE("texts that were made to collide are refused") {
  // Tokens whose first slots crowd into a twentieth of the table.
  TestVocab vocab;
  constexpr u32 kCount = 600;
  const u64 n_slots = TextIndex::slots_for(kCount);
  for (u64 i = 0; vocab.texts.size() < kCount; ++i) {
    const std::string text = std::to_string(i);
    if ((TextIndex::hash(text) >> 32) * n_slots >> 32 < n_slots / 20) vocab.add(text);
  }
  const VocabFile built(vocab.image());
  CHECK(hint_of(built.tokenizer) == "the tokens' texts were made to collide");
}

// 128 K tokens and 250 K merges: all words of one to three letters out of fifty, each merged in
// both ways.
TEST_CASE("a vocabulary of full size is built fast, in the planned memory") {
  TestVocab vocab;
  vocab.pre = "llama-bpe";
  for (u32 byte = 0; byte < 256; ++byte) vocab.add(byte_char(static_cast<u8>(byte)));
  const auto letter = [](u32 i) { return std::string(1, static_cast<char>('!' + i)); };
  constexpr u32 kLetters = 50;
  for (u32 a = 0; a < kLetters; ++a) {
    for (u32 b = 0; b < kLetters; ++b) {
      vocab.merges.push_back(letter(a) + " " + letter(b));
      vocab.add(letter(a) + letter(b));
    }
  }
  for (u32 i = 0; i < kLetters * kLetters * kLetters; ++i) {
    const std::string a = letter(i / 2500), b = letter(i / 50 % 50), c = letter(i % 50);
    vocab.merges.push_back(a + " " + b + c);
    vocab.merges.push_back(a + b + " " + c);
    vocab.add(a + b + c);
  }
  vocab.bos = vocab.add("<bos>", TokenKind::control);
  VocabFile built(vocab.image());
  REQUIRE(hint_of(built.tokenizer) == "no error");
  SystemClock clock;
  const u64 begin_ns = clock.now_ns();
  REQUIRE(Tokenizer::build(built.file, built.region).has_value());
  const u64 took_ms = (clock.now_ns() - begin_ns) / 1'000'000;
  MESSAGE(vocab.texts.size() << " tokens, " << vocab.merges.size() << " merges, "
                             << built.region.size() << " bytes: " << took_ms << " ms");
  CHECK(built.region.size() < 25'000'000);
  CHECK(took_ms < 2'000);  // 30 ms on an idle machine; this only catches what is quadratic
  CHECK(*encode(*built.tokenizer, "!!!") == Ids{256 + 2500});
}

}  // namespace
}  // namespace tarn::text::vocab_rules_test
