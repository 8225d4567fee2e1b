// A built vocabulary in its region. VocabBuilder writes it; afterwards nothing changes.
//
//   index       from a token's text to its id
//   merges      from a pair of ids to the merge that joins them. Both are hash tables with open
//               addressing in lent memory, filled once. Both are half full, probe linearly, and
//               refuse an entry more than kProbesMax from its place, so no vocabulary makes a
//               look-up slow
//   texts       [n_vocab]   as in the file; an empty token has no text and is in no table
//   attributes  [n_vocab]   TokenKind in the low bits, and what the rules add
//   scores      [n_vocab]   SPM: merges of high score first; never NaN
//   specials    ids of all control, unknown and user-defined tokens that have a text, in the order
//               of their texts, so that those which begin alike are neighbours
#pragma once

#include <array>
#include <span>
#include <string_view>

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

// The tokens' texts, without gaps.
struct TextTable {
  const char* bytes = nullptr;
  const u32* starts = nullptr;  // [n + 1]

  std::string_view at(u32 id) const { return {bytes + starts[id], starts[id + 1] - starts[id]}; }
};

enum class Insertion : u8 { done, repeated, crowded };

class TextIndex {
 public:
  // The number of slots for n entries at half load.
  static constexpr u64 slots_for(u64 n) { return 2 * n + 1; }

  TextIndex() = default;
  // Borrows both; `texts` may still grow.
  TextIndex(const TextTable& texts, std::span<u64> slots);

  static u64 hash(std::string_view text);
  Insertion insert(u32 id, u64 hash);  // hash of its text
  TokenId find(std::string_view text) const { return find(text, hash(text)); }
  TokenId find(std::string_view text, u64 hash) const;
  // Prefetches for many look-ups: an insert() costs one cache miss, a find() two in sequence, and
  // misses of different texts can overlap. Prefetch all slots, then all texts, then insert or find.
  // Without them the opening of a 128K vocabulary takes 50 ms more.
  void prefetch_slot(u64 hash) const;
  void prefetch_text(u64 hash) const;  // of the probable entry

 private:
  u64* locate(std::string_view text, u64 hash) const;

  TextTable texts_{};
  std::span<u64> slots_{};  // hash's low half << 32 | id + 1; 0 is free
};

struct Merge {
  u32 left = kNoToken;  // kNoToken: the slot is free
  u32 right = 0;
  u32 rank = 0;  // the merge's place in the file: low ranks merge first
  u32 result = 0;
};

class MergeIndex {
 public:
  static constexpr u64 slots_for(u64 n) { return 2 * n + 1; }

  MergeIndex() = default;
  explicit MergeIndex(std::span<Merge> slots);

  Insertion insert(const Merge& merge);
  void prefetch(u32 left, u32 right) const;
  // The slot of a pair; kNoSlot if nothing joins it.
  u32 find(u32 left, u32 right) const;
  const Merge& at(u32 slot) const { return slots_[slot]; }

  static constexpr u32 kNoSlot = ~u32{0};

 private:
  Merge* locate(u32 left, u32 right) const;

  std::span<Merge> slots_{};
};

struct Attribute {
  static constexpr u8 kKindMask = 0x07;
  static constexpr u8 kEnd = 0x08;         // ends a generation
  static constexpr u8 kEatsSpaces = 0x10;  // white space after it in the text belongs to it
  static constexpr u8 kMarker = 0x20;      // user-defined, and shapes a conversation
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
  TokenId padding = kNoToken;
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
  // Whether plain text never gives it by merging, because text must not imitate its meaning.
  bool is_reserved(TokenId id) const {
    const TokenKind its_kind = kind_of(id);
    return its_kind == TokenKind::control || its_kind == TokenKind::unknown || is_marker(id);
  }
  bool is_marker(TokenId id) const { return (attributes[id] & Attribute::kMarker) != 0; }
};

}  // namespace tarn::text
