// runtime/text/special_matches.h
//
// Finds special tokens written in a text. Where they overlap, the longer one wins wherever it
// stands, among equally long ones the lower id, then the one further left: what llama.cpp gets by
// cutting the text at one token after another, longest first, but without a pass over the text for
// each token.
#pragma once

#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/text/tokenizer.h"

namespace tarn::text {

struct SpecialMatch {
  u32 at = 0;  // in the text
  TokenId id = 0;
};

// Of scratch, for the worst text; the result, 8 bytes a match, stays.
constexpr u64 special_matches_bytes(u64 text_bytes) {
  return text_bytes * (sizeof(SpecialMatch) + 1) + 16;
}

// Matches in the order of the text, none overlapping. User-defined tokens always, control and
// unknown ones with `parse_special`. text.size() <= VocabLimits::kTextBytesMax.
Result<std::span<const SpecialMatch>> special_matches(const Tokenizer::Tables& tables,
                                                      std::string_view text, bool parse_special,
                                                      Bump& scratch);

}  // namespace tarn::text
