// A built vocabulary in its region. VocabBuilder writes it; afterwards nothing changes.
//
//   texts       [n_vocab]   as in the file; an empty token has no text and is in no table
//   attributes  [n_vocab]   TokenKind in the low bits, and what the rules add
//   scores      [n_vocab]   SPM: merges of high score first; never NaN
//   specials    ids of all control, unknown and user-defined tokens that have a text, in the order
//               of their texts, so that those which begin alike are neighbours
#pragma once

#include <array>

#include "runtime/text/text_index.h"
#include "runtime/text/tokenizer.h"

namespace tarn::text {

// The only table of a vocabulary's limits, with their reasons. GGUF's own limits apply first.
struct VocabLimits {
  // The largest in use have 0.26 M tokens and 0.51 M merges.
  static constexpr u64 kTokensMax = u64{2} * 1024 * 1024;
  static constexpr u64 kMergesMax = u64{4} * 1024 * 1024;
  // The longest tokens in use are 512 spaces, 1 KiB as byte-level BPE stores them. The limit bounds
  // the bytes that one look-up hashes, and so the time for hostile text and vocabulary.
  static constexpr u64 kTokenBytesMax = u64{4} * 1024;
  // The largest distance of a table entry from its place. At half load a natural vocabulary stays
  // below 40 (256 has odds under 1e-15), so a vocabulary beyond it was made to collide.
  static constexpr u32 kProbesMax = 256;
  // Positions in prepared text, up to three bytes for one of the text, are 32-bit numbers.
  static constexpr u64 kTextBytesMax = u64{1} << 30;
};

struct Attribute {
  static constexpr u8 kKindMask = 0x07;
  static constexpr u8 kEnd = 0x08;         // ends a generation
  static constexpr u8 kEatsSpaces = 0x10;  // white space after it in the text belongs to it
};

struct Tokenizer::Tables {
  VocabKind kind = VocabKind::spm;
  PreTokenizer pre_tokenizer = PreTokenizer::none;
  bool adds_bos = false;
  bool adds_eos = false;
  bool adds_space_prefix = false;
  bool whole_words_first = false;  // a pre-token that is a token is not merged

  u32 n_vocab = 0;
  TokenId bos = kNoToken;
  TokenId eos = kNoToken;
  TokenId unknown = kNoToken;
  u32 text_bytes_max = 0;               // of the longest token
  std::array<TokenId, 256> byte_ids{};  // kNoToken: this byte has no token of its own

  TextTable texts{};
  TextIndex index{};
  MergeIndex merges{};
  std::span<u8> attributes{};
  std::span<f32> scores{};
  std::span<u32> specials{};
  // By first byte: whether a special token starts with it; the second table is for user-defined
  // ones.
  std::array<bool, 256> special_starts{};
  std::array<bool, 256> user_defined_starts{};

  TokenKind kind_of(TokenId id) const {
    return static_cast<TokenKind>(attributes[id] & Attribute::kKindMask);
  }
};

// Ids that plain text never gives by merging, because text must not imitate their meaning.
constexpr bool is_reserved(TokenKind kind) {
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

}  // namespace tarn::text
