// Cuts text into pre-tokens; byte-level BPE merges only inside them. Each scanner is its family's
// regular expression written by hand, because no regex engine with look-ahead has bounded time and
// stack on hostile text (ROBUSTNESS T2). Every character is read a fixed number of times: linear
// time, no memory.
//
//   gpt2       's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   llama_bpe  (?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+
//              |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2      as llama_bpe with \p{N} for \p{N}{1,3}
//   smollm     \p{N}, then gpt2 in each stretch between
//
// Expressions in sequence are stages: each cuts the pieces that the one before it leaves, and sees
// no text beyond its piece.
//
// The families' own files spell the contractions (?i:'s|...). Engines that fold case over all of
// Unicode then match U+017F as an s. llama.cpp does not, and our ids must equal its ids.
#pragma once

#include <array>
#include <string_view>

#include "runtime/text/tokenizer.h"

namespace tarn::text {

// The state machine of one regular expression.
enum class CutRule : u8 { gpt2, llama, number };

struct CutStage {
  CutRule rule = CutRule::gpt2;
  u32 digits_max = 0;  // llama: \p{N}{1,digits_max}
};
inline constexpr u64 kCutStagesMax = 2;

class Splitter {
 public:
  // `pre` is not none; `text` is borrowed.
  Splitter(PreTokenizer pre, std::string_view text);

  // The next pre-token, never empty before the end; empty at the end.
  std::string_view next();

 private:
  std::span<const CutStage> stages_{};
  std::string_view text_;
  u64 at_ = 0;
  // Of the piece at at_, by stage: each ends within the one before.
  std::array<u64, kCutStagesMax> ends_{};
};

}  // namespace tarn::text
