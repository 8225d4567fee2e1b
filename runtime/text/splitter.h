// Cuts text into pre-tokens; BPE merges only inside them. A pre-tokenizer is a row of the table in
// splitter.cpp: its regular expressions in sequence, as stages. Each stage cuts the pieces that the
// one before it leaves, and sees no text beyond its piece.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "runtime/text/scanner.h"
#include "runtime/text/tokenizer.h"

namespace tarn::text {

using CutStage = u64 (*)(const Scanner&);  // returns where the piece ends
inline constexpr u64 kCutStagesMax = 6;

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
  // Ends of the piece at at_, by stage: each lies within the one before.
  std::array<u64, kCutStagesMax> ends_{};
  std::array<u64, kCutStagesMax> groups_ends_{};  // Scanner's, by stage
};

}  // namespace tarn::text
