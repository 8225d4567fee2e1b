// Fuzz target: a vocabulary of any tokens, types, scores, merges and special ids, in a well-formed
// file. What is built is used: every token shown, a text of its own tokens encoded.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "runtime/model/gguf.h"
#include "runtime/text/tokenizer.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/runtime/text/test_vocab.h"
#include "tests/support/memory_io.h"

namespace tarn::text {
namespace {

using test::FuzzInput;

constexpr u32 kTokensMax = 64;
constexpr u32 kMergesMax = 64;
constexpr u64 kTextBytesMax = 512;

// Texts that rules look for, beside any.
constexpr std::array kTexts = {"a",     "b",       "ab",         "\u2581",   "<0x41>", "<0x-1>",
                               "</s>",  "<|end|>", "<|return|>", "<|call|>", "<PRE>",  "<|start|>",
                               "[PAD]", ""};
constexpr std::array kPres = {"",       "gpt-2",  "llama-bpe",    "qwen2",  "glm4",  "default",
                              "gemma4", "tekken", "deepseek-llm", "jais-2", "afmoe", "superbpe"};
constexpr std::array kIdKeys = {"bos", "eos", "unknown", "eot", "eom", "fim_pad", "suffix"};

std::string pick_text(FuzzInput& input) {
  const u32 choice = input.number<u8>();
  if (choice < kTexts.size()) return kTexts[choice];
  if (choice < 40) return byte_char(input.number<u8>());
  return std::string(input.text(choice % 16));
}

test::GgufImage pick_image(FuzzInput& input) {
  const char* pre = kPres[input.below(kPres.size())];
  TestVocab vocab;
  // Mostly small ones: the 256 bytes cost more than all the rest.
  if (input.number<u8>() % 8 == 7) vocab = TestVocab::begin(pre);
  vocab.pre = pre;
  for (u32 n = input.below(kTokensMax); n > 0; --n) {
    const std::string text = pick_text(input);
    // A repeated text ends a build: rare on purpose.
    if (!vocab.find(text) || input.number<u8>() == 0) vocab.add(text);
    const u8 kind = input.number<u8>();
    vocab.kinds.back() = kind < 200 ? static_cast<i32>(kind % 7) : static_cast<i8>(kind);
    vocab.scores.back() = input.number<f32>();
  }
  for (u32 n = input.below(kMergesMax); n > 0 && !vocab.texts.empty(); --n) {
    const auto token = [&] { return vocab.texts[input.number<u8>() % vocab.texts.size()]; };
    const std::string left = token(), right = token();
    if (input.number<u8>() == 0) {
      vocab.merges.push_back(pick_text(input));
    } else if (!left.empty() && !right.empty() && left.find(' ', 1) == std::string::npos) {
      vocab.add_merge(left, right);
    }
  }
  vocab.adds_bos = input.number<u8>() % 2 != 0;
  vocab.adds_eos = input.number<u8>() % 4 == 0;
  test::GgufImage image = vocab.image();
  for (u32 n = input.below(4); n > 0; --n) {
    const std::string key = "tokenizer.ggml." + std::string(kIdKeys[input.below(kIdKeys.size())]);
    image.set_u32(key + "_token_id", input.number<u8>() < 250 ? input.number<u8>() : ~0u);
  }
  for (u32 n = input.below(3); n > 0 && !image.keys.empty(); --n) {
    const u64 at = input.below(static_cast<u32>(image.keys.size()));
    if (input.number<u8>() % 2 == 0) {
      image.keys.erase(image.keys.begin() + static_cast<std::ptrdiff_t>(at));
    } else {
      image.set_u64(image.keys[at].name, input.number<u64>());
    }
  }
  if (input.number<u8>() % 8 == 0) image.set_string("general.name", "phi-3");
  return image;
}

void use(const Tokenizer& tokenizer, FuzzInput& input) {
  std::string text(input.text(64));
  std::vector<char> shown(3 * (tokenizer.piece_bytes_max() + 4));
  Detokenizer detokenizer(tokenizer);
  for (TokenId id = 0; id < tokenizer.n_vocab(); ++id) {
    detokenizer.push(id, shown);
    text.append(shown.data(), tokenizer.piece(id, true, shown));
    static_cast<void>(tokenizer.is_end(id));
  }
  detokenizer.finish(shown);
  text.resize(std::min<u64>(text.size(), kTextBytesMax));
  std::vector<std::byte> scratch(Tokenizer::encode_scratch_bytes(text.size()));
  std::vector<TokenId> ids(Tokenizer::encode_ids_max(text.size()));
  const auto n_ids =
      tokenizer.encode(text, {.add_special = true, .parse_special = true}, scratch, ids);
  // With room for the worst, only a missing token can be in the way.
  if (!n_ids && std::string_view(n_ids.error().hint).starts_with("this vocabulary")) return;
  if (!n_ids) __builtin_trap();
  for (u64 i = 0; i < *n_ids; ++i) {
    if (ids[i] >= tokenizer.n_vocab()) __builtin_trap();
  }
}

}  // namespace
}  // namespace tarn::text

extern "C" int LLVMFuzzerTestOneInput(const tarn::u8* data, size_t n_bytes) {
  using namespace tarn;
  test::FuzzInput input(data, n_bytes);
  const test::Bytes bytes = text::pick_image(input).bytes();
  static std::vector<std::byte> directory(model::kGgufMemoryBytesMax);
  Bump memory(directory);
  test::MemoryIo io;
  io.script.direct = false;
  const auto file = model::GgufFile::read(io, io.add(bytes), memory);
  if (!file) return 0;
  const auto region_bytes = text::Tokenizer::memory_bytes(*file);
  if (!region_bytes) return 0;
  std::vector<std::byte> region(*region_bytes);
  const auto tokenizer = text::Tokenizer::build(*file, region);
  if (tokenizer) text::use(*tokenizer, input);
  return 0;
}
