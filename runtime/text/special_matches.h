// Finds special tokens in a text. Of overlapping ones the longest wins. Among equally long ones it
// is the lower id, then the one further left. llama.cpp gets the same by cutting the text at token
// after token, longest first; this needs no pass over the text for each token.
#pragma once

#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/text/tokenizer.h"

namespace tarn::text {

struct SpecialMatch {
  u32 at = 0;  // place in the text
  TokenId id = 0;
};

// Bytes of scratch for the worst text; the result, 8 bytes a match, stays in it.
constexpr u64 special_matches_bytes(u64 text_bytes) {
  return text_bytes * (sizeof(SpecialMatch) + 1) + 16;
}

// Returns matches in the order of the text, without overlap. User-defined tokens always match,
// control and unknown ones with `parse_special`. text.size() <= VocabLimits::kTextBytesMax.
Result<std::span<const SpecialMatch>> special_matches(const Tokenizer::Tables& tables,
                                                      std::string_view text, bool parse_special,
                                                      Bump& scratch);

}  // namespace tarn::text
