// Fills a region with a vocabulary, one token and one merge at a time, checking each against what
// is there. Tokenizer::build() feeds it from a file, tests from memory. The order of calls:
//
//   begin, add_token x n_tokens, [scores(), kinds()], finish_tokens, add_merge x n_merges, finish
//
// All input is untrusted. After an error the region is undefined and the builder must not be used.
#pragma once

#include <array>
#include <optional>

#include "runtime/text/known_names.h"
#include "runtime/text/tables.h"

namespace tarn::text {

struct VocabCounts {
  VocabKind kind = VocabKind::spm;
  u64 n_tokens = 0;
  u64 text_bytes = 0;  // of all tokens' texts together
  u64 n_merges = 0;    // 0 for an SPM
};

struct VocabRules {
  PreTokenizerRules pre{};                               // BPE
  std::array<std::optional<u64>, kRoles> special_ids{};  // from the file, by Role
  std::optional<bool> adds_bos{};                        // missing: the family's default
  std::optional<bool> adds_eos{};
  std::optional<bool> adds_space_prefix{};
  bool specials_eat_spaces = false;  // Phi-3: white space after a special token belongs to it
};

class VocabBuilder {
 public:
  // The most bytes that begin() needs.
  static Result<u64> region_bytes(const VocabCounts& counts);
  static Result<VocabBuilder> begin(const VocabCounts& counts, std::span<std::byte> region);

  Result<void> add_token(std::string_view text);
  // Fill these before finish_tokens(), if the file has them. Scores: SPM only, else empty.
  std::span<f32> scores() { return tables_->scores; }
  std::span<i32> kinds() { return kinds_; }
  Result<void> finish_tokens(const VocabRules& rules);

  // "left right", in the order of rank.
  Result<void> add_merge(std::string_view text);
  Result<Tokenizer> finish();

 private:
  struct Parts;
  Result<void> insert_tokens();
  Result<void> set_attributes();
  Result<void> set_roles(const VocabRules& rules);
  void mark_ends(const VocabRules& rules);
  void set_kind(TokenId id, TokenKind kind);
  void keep_specials();
  void set_byte_ids();
  Result<void> insert_pending();
  TokenId merge_result(std::string_view left, std::string_view right) const;

  Tokenizer::Tables* tables_ = nullptr;
  VocabCounts counts_{};
  std::span<char> texts_{};
  std::span<u32> starts_{};  // [n_tokens + 1]
  std::span<i32> kinds_{};   // until finish_tokens(); then the memory of Tables::specials
  std::array<TokenId, kRoles> roles_{};
  u32 n_tokens_ = 0;
  u32 n_merges_ = 0;
  TokenId last_result_ = kNoToken;

  // Merges are added in batches, so that their cache misses overlap. They wait without their parts,
  // which are in the text of their result.
  static constexpr u32 kPendingMax = 64;
  struct PendingMerge {
    u32 left_bytes = 0;
    u64 left_hash = 0;
    u64 right_hash = 0;
    Merge merge{};
  };
  std::array<PendingMerge, kPendingMax> pending_{};
  u32 n_pending_ = 0;
};

}  // namespace tarn::text
