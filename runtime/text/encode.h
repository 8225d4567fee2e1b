// Encodes one stretch of plain text without special tokens to ids. Private to this folder.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/text/tables.h"

namespace tarn::text {

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
