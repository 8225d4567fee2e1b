// The parts of Tokenizer::encode(): special tokens are found window by window, and the stretches of
// plain text between them are encoded piece by piece. Private to this folder.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/text/merge_queue.h"
#include "runtime/text/tables.h"

namespace tarn::text {

// A special token in a text. Of overlapping ones the longest wins. Among equally long ones it is
// the lower id, then the one further left. llama.cpp gets the same by cutting the text at token
// after token, longest first; this needs no pass over the text for each token.
struct SpecialMatch {
  u32 at = 0;  // place in the text
  TokenId id = 0;
};

// The window of text that is searched at once: a quarter of the scratch serves the worst one, which
// has a match at each byte.
constexpr u64 special_window_bytes(u64 scratch_bytes) {
  return scratch_bytes / (4 * (sizeof(SpecialMatch) + 1));
}

struct SpecialMatches {
  std::span<const SpecialMatch> matches{};  // in the order of the text, without overlap
  u64 end = 0;                              // of what was searched
};
// The matches of the whole text from `begin` on, which is 0 or the last `end`, for a window or
// less. User-defined tokens always match, control and unknown ones with `parse_special`. Markers
// and the latter match only where options.origins allow it.
// An error if matches overlap without a gap for a whole window and each beats the one before it:
// no vocabulary in use has so many special tokens.
Result<SpecialMatches> special_matches(const Tokenizer::Tables& tables, std::string_view text,
                                       u64 begin, const EncodeOptions& options, Bump& scratch);

// Writes ids, and counts those that have no room.
class IdWriter {
 public:
  explicit IdWriter(std::span<TokenId> out) : out_(out) {}

  void push(TokenId id) {
    if (n_ < out_.size()) out_[n_] = id;
    n_ += 1;
  }
  u64 n() const { return n_; }

 private:
  std::span<TokenId> out_;
  u64 n_ = 0;
};

// The error for a text of which no beginning is certain before its end is read.
Unexpected cannot_cut(std::string_view text);

// Text of any length, in pieces that fit in the scratch.
Result<void> encode_bpe(const Tokenizer::Tables& tables, std::string_view text, Bump& scratch,
                        IdWriter& out);
// `space_first`: as if a space preceded the text.
Result<void> encode_spm(const Tokenizer::Tables& tables, std::string_view text, bool space_first,
                        Bump& scratch, IdWriter& out);

// Prepared bytes of a byte of the worst text. BPE turns a stray byte into the three bytes of
// U+FFFD. SPM turns a space into the three of U+2581, and keeps a copy of the text for it.
constexpr u64 kPreparedBytesMax = 3;
constexpr u64 kSpacePrefixBytes = 3;

// Scratch for encoding n prepared bytes at once, and the n that some scratch is enough for.
constexpr u64 plain_bytes(u64 n_prepared) { return n_prepared + Symbols::bytes(n_prepared); }
constexpr u64 prepared_bytes_max(u64 scratch_bytes) {
  constexpr u64 kFixedBytes = plain_bytes(0);
  constexpr u64 kPositionBytes = (plain_bytes(4) - kFixedBytes) / 4;
  const u64 n = scratch_bytes < kFixedBytes ? 0 : (scratch_bytes - kFixedBytes) / kPositionBytes;
  return n < VocabLimits::kTextBytesMax ? n : VocabLimits::kTextBytesMax;
}

}  // namespace tarn::text
