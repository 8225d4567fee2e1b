// runtime/text/encode.h
//
// One stretch of plain text, in which no special token stands, to ids. Private to this folder.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/text/tables.h"

namespace tarn::text {

// Ids go out through this; it refuses what does not fit.
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
// `space_first`: as if a space stood in front.
Result<void> encode_spm(const Tokenizer::Tables& tables, std::string_view text, bool space_first,
                        Bump& scratch, IdWriter& out);

// Of scratch, for the worst text: BPE turns a stray byte into the three of U+FFFD, SPM a space into
// the three of U+2581, for which SPM keeps a copy as well.
constexpr u64 kPreparedBytesMax = 3;
constexpr u64 kSpacePrefixBytes = 3;

}  // namespace tarn::text
