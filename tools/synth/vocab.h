// Made-up vocabularies of each family and any size. Every text can be encoded (all 256 bytes have a
// token), every merge's parts and result are tokens, and special tokens have the places of the real
// files. Words are made of syllables, "bakeri", of no language; the same on every machine.
#pragma once

#include <string>
#include <vector>

#include "platform/base/types.h"
#include "tools/support/gguf_write.h"

namespace tarn::synth {

enum class VocabFamily : u8 {
  spm,        // Llama 2, Mistral: SentencePiece with scores and byte tokens
  llama_bpe,  // Llama 3: byte-level BPE, 256 special tokens at the end
  qwen2,      // byte-level BPE, special tokens from <|endoftext|> on
  qwen3,      // as qwen2, four special tokens more
};

// The smallest vocabulary that make_vocabulary() can build.
inline constexpr u32 kVocabTokensMin = 1024;

struct Vocabulary {
  VocabFamily family = VocabFamily::spm;
  std::vector<std::string> tokens;  // as in the file
  std::vector<f32> scores;          // SPM only
  std::vector<i32> kinds;           // GGUF's token types
  std::vector<std::string> merges;  // BPE only
  u32 bos = 0;
  u32 eos = 0;
};

// Exactly n_tokens tokens. If the family's real size is smaller, the rest is [PADn] as in the real
// files.
Vocabulary make_vocabulary(VocabFamily family, u32 n_tokens);

// Writes the tokenizer.* keys as llama.cpp's converter does.
void set_vocabulary(tools::GgufWriter& writer, const Vocabulary& vocabulary);

}  // namespace tarn::synth
