// Cuts text into pre-tokens; byte-level BPE merges only inside them. Each scanner is its family's
// regular expression written by hand, because no regex engine with look-ahead has bounded time and
// stack on hostile text (ROBUSTNESS T2). Every character is read a fixed number of times: linear
// time, no memory.
//
//   gpt2       's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//   llama_bpe  (?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+
//              |\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
//   qwen2      as llama_bpe with \p{N} for \p{N}{1,3}
//
// The families' own files spell the contractions (?i:'s|...). Engines that fold case over all of
// Unicode then match U+017F as an s. llama.cpp does not, and our ids must equal its ids.
#pragma once

#include <string_view>

#include "runtime/text/tokenizer.h"
#include "runtime/text/unicode.h"

namespace tarn::text {

class Splitter {
 public:
  // `pre` is not none; `text` is borrowed.
  Splitter(PreTokenizer pre, std::string_view text) : pre_(pre), text_(text) {}

  // The next pre-token, never empty before the end; empty at the end.
  std::string_view next();

 private:
  struct Char {
    u32 value = 0;
    CharClass kind = CharClass::none;
    u64 end = 0;  // start of the next character
  };

  Char char_at(u64 at) const;
  u64 skip(CharClass kind, u64 at) const;
  u64 contraction_end(bool any_case) const;
  u64 spaces_end(bool newlines_end) const;
  u64 gpt2_end() const;
  u64 llama_end(u32 digits_max) const;

  PreTokenizer pre_;
  std::string_view text_;
  u64 at_ = 0;
};

}  // namespace tarn::text
