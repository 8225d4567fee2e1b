// Text to token ids and back, for the vocabularies in GGUF files: SentencePiece BPE by score as
// llama uses it ("llama"), byte-level BPE ("gpt2") with the pre-tokenizers of known_names.h, and
// the BPE of characters of Gemma 4 ("gemma4"). The ids equal llama.cpp's, for ill-formed UTF-8 too,
// with the exceptions below: where llama.cpp would crash, lose bytes or turn plain text into a
// control token.
//
//   memory   one region; build() uses at most memory_bytes()
//   time     O(n log n) for n bytes and a bounded longest piece (tables.h); no recursion, no
//            regex engine. A look-up touches at most kProbesMax neighbours for any file.
//   thread   encode and decode are const and take the caller's scratch; any thread
//   errors   invalid_model when the vocabulary contradicts itself; unsupported for another kind of
//            tokenizer or pre-tokenizer; invalid_request when text cannot be encoded (an SPM
//            without byte fallback and without <unk>) or cut
//
// A byte for which a BPE has no token gives none (SmolLM2 and Falcon lack control characters).
//
// Deliberate differences from llama.cpp; valid files show only the last:
//   - Text never becomes a control or unknown token by merging or as a whole word; it needs
//     parse_special (ROBUSTNESS T5). An SPM's byte tokens come from byte fallback alone.
//   - A merge whose parts or result are not tokens, a repeated token, a byte token that is not
//     <0xHH>: invalid_model instead of an assertion, lost bytes or a write out of bounds.
//   - A BPE file that names no BOS or EOS has none (there: token 11).
//   - An empty token stands for nothing (there: for "[EMPTY_n]"). A character of a byte-level BPE
//     that represents no byte is shown as it is (there: as "[UNK_BYTE_...]").
//
// Only the tokenizer.* keys are needed, so vocabulary-only files of any architecture work.
#pragma once

#include <span>
#include <string_view>

#include "platform/base/bump.h"
#include "platform/base/result.h"
#include "runtime/model/gguf.h"
#include "runtime/model/refusals.h"

namespace tarn::text {

using TokenId = u32;
inline constexpr TokenId kNoToken = ~TokenId{0};

// The file's numbers. The encoder treats undefined and unused tokens like normal ones; they show no
// text.
enum class TokenKind : u8 {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6
};

enum class SpecialToken : u8 { bos, eos, unknown, padding };
enum class VocabKind : u8 {
  spm,      // "llama": the token of the highest score first
  bpe,      // "gpt2": the merges of the file, of bytes
  char_bpe  // "gemma4": the merges of the file, of characters; SPM's space marks and byte tokens
};
// The rows of the splitters' table, by one name of those that share it (known_names.cpp).
enum class PreTokenizer : u8 {
  none,
  gpt2,
  llama_bpe,
  qwen2,
  smollm,
  falcon,
  unnamed,  // of files that name none
  deepseek_llm,
  deepseek_coder,
  deepseek_v3,
  spark,
  afmoe,
  youtu,
  tiny_aya,
  qwen35,
  bloom,
  viking,
  tekken,
  gpt4o,
  granite_embed,
  kimi_k2,
  superbpe,
  seed_coder,
  ufakzeka,
  exaone_moe,
  laguna,
  minicpm5,
  jais2,
  gemma4,
  count
};

struct EncodeOptions {
  bool add_special = false;    // BOS and EOS as the file's rules say
  bool add_bos = false;        // BOS alone: the text is to be continued
  bool may_have_bos = false;   // it is not added where the text begins with it
  bool parse_special = false;  // control tokens written in the text become themselves, too; those
                               // that are user-defined always do
  // Who wrote each byte: 0 for the chat template. Control tokens and user-defined markers
  // (known_names.h) are taken only where the template wrote all of their bytes. Empty: no rule.
  std::span<const u8> origins{};  // [text.size()]
};

class Tokenizer {
 public:
  Tokenizer() = default;

  // An upper bound of memory, computed only from counts and sizes in the directory.
  static Result<u64> memory_bytes(const model::GgufFile& file);
  // Notes what build() refuses of the keys, before it reads their arrays.
  static Result<void> check_keys(const model::GgufFile& file, model::Refusals& refusals);
  // Reads the vocabulary into `region`, which is borrowed for the life of the object.
  static Result<Tokenizer> build(const model::GgufFile& file, std::span<std::byte> region);

  u32 n_vocab() const;
  bool is_end(TokenId id) const;  // ends a generation; false for an id that does not exist
  // Returns what every text begins with, by the file's rules: BOS, or nothing.
  std::optional<TokenId> first_token() const;
  // As the file writes it; empty if the vocabulary has none.
  std::string_view special_text(SpecialToken which) const;

  // Bytes of scratch with which encode() takes any text of `text_bytes` at once.
  static u64 encode_scratch_bytes(u64 text_bytes);
  // The most ids of any text of `text_bytes`: four for a byte (a stray one becomes U+FFFD, a space
  // after a special token two marks of three bytes), and BOS and EOS.
  static u64 encode_ids_max(u64 text_bytes) { return 4 * text_bytes + 8; }

  // Writes ids into `out`, as many as there is room for, and returns how many the text has. A text
  // that needs more scratch than it is lent is encoded in pieces, and the ids stay the same: it is
  // cut where no token of the vocabulary lies over the place, or behind a token that the rest of
  // the text does not change (seam.h). (BPE cuts only words.) invalid_request where neither is
  // found, which needs a vocabulary made for it, or scratch for a few characters alone.
  Result<u64> encode(std::string_view text, EncodeOptions options, std::span<std::byte> scratch,
                     std::span<TokenId> out) const;

  // Writes the bytes of one token into `out` (an SPM space mark as a space, a byte token as its
  // byte). Control and unknown tokens give nothing unless `special`. Returns the length, at most
  // piece_bytes_max(). id < n_vocab().
  u64 piece(TokenId id, bool special, std::span<char> out) const;
  u64 piece_bytes_max() const;

  struct Tables;  // tables.h, private to this folder and its tests
  const Tables& tables() const { return *tables_; }

 private:
  friend class VocabBuilder;
  const Tables* tables_ = nullptr;
};

// The error for tokens that the context cannot hold.
enum class Counted : u8 { exactly, estimated };
Unexpected exceeds_context(u64 n_tokens, u64 context_tokens, Counted counted = Counted::exactly);

// A tokenizer, the scratch that it encodes in, and room for ids: lent, one text at a time.
class Encoder {
 public:
  // Scratch for windows of 44 KiB, or less if the context holds little text.
  static u64 scratch_bytes(u64 context_tokens);
  // For the ids of two texts that fill the context, and where they come from.
  struct Room {
    std::span<TokenId> ids{};
    std::span<u8> origins{};
  };
  void init(const Tokenizer& tokenizer, const Room& room, std::span<std::byte> scratch) {
    tokenizer_ = tokenizer;
    room_ = room;
    scratch_ = scratch;
  }

  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Its user shares it out.
  const Room& room() const { return room_; }
  // Into the caller's memory, as Tokenizer::encode().
  Result<u64> encode(std::string_view text, EncodeOptions options, std::span<TokenId> out) const {
    return tokenizer_.encode(text, options, scratch_, out);
  }
  // Returns the most ids that a text of this length can have in the context. invalid_request for
  // more bytes than encode() reads, such as a length that is wrong.
  Result<u32> ids_max(u64 text_bytes) const;
  // encode() for an `out` of ids_max(): invalid_request, with the count, where the context cannot
  // hold the ids.
  Result<u64> encode_whole(std::string_view text, EncodeOptions options,
                           std::span<TokenId> out) const;
  u64 context_tokens() const { return room_.ids.size() / 2; }

 private:
  Tokenizer tokenizer_{};
  Room room_{};
  std::span<std::byte> scratch_{};
};

// Turns a stream of tokens into text that is valid UTF-8 at every moment: an unfinished character
// (at most 3 bytes) is held back until it is complete. Ill-formed bytes give U+FFFD for each
// maximal ill-formed part (Unicode 15, 3.9, best practice).
class Detokenizer {
 public:
  Detokenizer() = default;
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(&tokenizer) {}  // borrows it
  // Appends the text that is complete; returns its length. out >= 3 * (piece_bytes_max() + 4).
  u64 push(TokenId id, std::span<char> out);
  // Ends the stream: writes held-back bytes as U+FFFD (at most 3 bytes, because a cut character is
  // one maximal part).
  u64 finish(std::span<char> out);

 private:
  const Tokenizer* tokenizer_ = nullptr;
  u8 held_[4] = {};
  u8 n_held_ = 0;
};

}  // namespace tarn::text
