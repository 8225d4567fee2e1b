// The parts of Tokenizer::encode(): special tokens are found first, and the stretches of plain text
// between them are encoded. Private to this folder.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/text/tables.h"

namespace tarn::text {

// A special token in a text. Of overlapping ones the longest wins. Among equally long ones it is
// the lower id, then the one further left. llama.cpp gets the same by cutting the text at token
// after token, longest first; this needs no pass over the text for each token.
struct SpecialMatch {
  u32 at = 0;  // place in the text
  TokenId id = 0;
};

// Bytes of scratch for the worst text; the result, 8 bytes a match, stays in it.
constexpr u64 special_matches_bytes(u64 text_bytes) {
  return text_bytes * (sizeof(SpecialMatch) + 1) + 16;
}

// Returns matches in the order of the text, without overlap. User-defined tokens always match,
// control and unknown ones with `parse_special`; markers and the latter only where options.origins
// allow it, as if they did not match elsewhere. text.size() <= VocabLimits::kTextBytesMax.
Result<std::span<const SpecialMatch>> special_matches(const Tokenizer::Tables& tables,
                                                      std::string_view text,
                                                      const EncodeOptions& options, Bump& scratch);

// Writes ids, and refuses them when the room is used up.
class IdWriter {
 public:
  explicit IdWriter(std::span<TokenId> out) : out_(out) {}

  Result<void> push(TokenId id) {
    if (n_ == out_.size()) {
      return fail({.status = Status::invalid_request,
                   .hint = "the text gives more tokens than there is room for; shorten it or lend "
                           "encode_ids_max()",
                   .figures = {{{"room", out_.size()}}}});
    }
    out_[n_++] = id;
    return {};
  }
  u64 n() const { return n_; }

 private:
  std::span<TokenId> out_;
  u64 n_ = 0;
};

Result<void> encode_bpe(const Tokenizer::Tables& tables, std::string_view text, Bump& scratch,
                        IdWriter& out);
// `space_first`: as if a space preceded the text.
Result<void> encode_spm(const Tokenizer::Tables& tables, std::string_view text, bool space_first,
                        Bump& scratch, IdWriter& out);

// Bytes of scratch for a byte of the worst text. BPE turns a stray byte into the three bytes of
// U+FFFD. SPM turns a space into the three of U+2581, and keeps a copy of the text for it.
constexpr u64 kPreparedBytesMax = 3;
constexpr u64 kSpacePrefixBytes = 3;

}  // namespace tarn::text
