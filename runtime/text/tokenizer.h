// runtime/text/tokenizer.h
//
// Text to token ids and back, for the vocabularies in GGUF files: SentencePiece unigram-by-score as
// llama uses it ("llama"), and byte-level BPE ("gpt2") with the pre-tokenizers gpt-2, llama-bpe, qwen2.
//
//   memory   one region; tokenizer_memory_bytes() is what build() will use at most
//   time     O(1) amortised per input byte for a bounded longest piece; no recursion, no regex engine
//   thread   encode and decode are const and take the caller's scratch; any thread
//   errors   invalid_model when the vocabulary contradicts itself; invalid_request when text cannot be
//            encoded (an SPM without byte fallback and without <unk>) or does not fit
//
// Only the tokenizer.* keys are needed, so vocabulary-only files of any architecture work.
#pragma once

#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/model/gguf.h"

namespace tarn::text {

using TokenId = u32;
inline constexpr TokenId kNoToken = ~TokenId{0};

enum class TokenKind : u8 { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

enum class VocabKind : u8 { spm, bpe };
enum class PreTokenizer : u8 { none, gpt2, llama_bpe, qwen2 };

struct EncodeOptions {
  bool add_special = false;    // BOS/EOS as the file's rules say
  bool parse_special = false;  // control and user-defined tokens written in the text become themselves
};

class Tokenizer {
 public:
  Tokenizer() = default;

  // An upper bound, from counts and byte sizes in the directory alone.
  static Result<u64> memory_bytes(const model::GgufFile& file);
  // Reads the vocabulary into `region`, which is borrowed for the life of the object.
  static Result<Tokenizer> build(const model::GgufFile& file, std::span<std::byte> region);

  u32 n_vocab() const;
  VocabKind kind() const;
  PreTokenizer pre_tokenizer() const;
  TokenId bos() const;  // kNoToken where there is none
  TokenId eos() const;
  TokenId unknown() const;
  bool adds_bos() const;
  bool adds_eos() const;
  bool is_end(TokenId id) const;      // eos, eot, eom and what the file names as such
  TokenKind token_kind(TokenId id) const;  // id < n_vocab()
  std::string_view token_text(TokenId id) const;  // as stored in the file

  // Bytes of scratch that encoding `text_bytes` of text wants, and the ids it can give at most.
  static u64 encode_scratch_bytes(u64 text_bytes);
  static u64 encode_ids_max(u64 text_bytes) { return text_bytes + 4; }

  // Ids into `out` (at least encode_ids_max(text.size())); returns how many.
  Result<u64> encode(std::string_view text, EncodeOptions options, std::span<std::byte> scratch,
                     std::span<TokenId> out) const;

  // The bytes one token stands for (an SPM space is already a space; a byte token is its byte), into
  // `out`; control tokens give nothing unless `special`. Returns the length; at most piece_bytes_max().
  u64 piece(TokenId id, bool special, std::span<char> out) const;
  u64 piece_bytes_max() const;

  struct Tables;  // private to tokenizer.cpp

 private:
  const Tables* tables_ = nullptr;
};

// Turns a stream of tokens into text that is valid UTF-8 at every moment: holds back an unfinished
// character (at most 3 bytes) until it is complete. Bytes that can never become a character give
// U+FFFD each maximal ill-formed part (Unicode 15, 3.9, best practice). The first token of an SPM text
// drops the space that the encoder put in front (where the file says that it does).
class Detokenizer {
 public:
  Detokenizer() = default;
  explicit Detokenizer(const Tokenizer& tokenizer, bool at_start) : tokenizer_(&tokenizer), at_start_(at_start) {}
  // Appends what can be shown now; returns its length. out >= 3 * (piece_bytes_max() + 4).
  u64 push(TokenId id, std::span<char> out);
  // What was held back, as U+FFFD; ends the stream.
  u64 finish(std::span<char> out);

 private:
  const Tokenizer* tokenizer_ = nullptr;
  bool at_start_ = true;
  u8 held_[4] = {};
  u8 n_held_ = 0;
};

}  // namespace tarn::text
