// A tokenizer and the memory that its calls work in: one text, or one token, at a time.
//
//   memory    lent; a call's result stays in it until the next call
//   thread    one at a time
#pragma once

#include "runtime/text/tokenizer.h"

namespace tarn::text {

class Encoder {
 public:
  struct Memory {
    std::span<char> piece{};         // Tokenizer::piece_bytes_max()
    std::span<TokenId> ids{};        // Tokenizer::encode_ids_max(text_bytes_max)
    std::span<std::byte> scratch{};  // Tokenizer::encode_scratch_bytes(text_bytes_max)
    u64 text_bytes_max = 0;
    bool is_capped = false;  // by engine.text_bytes_max, and not by the context
  };
  void init(const Tokenizer& tokenizer, const Memory& memory) {
    tokenizer_ = tokenizer;
    memory_ = memory;
  }

  const Tokenizer& tokenizer() const { return tokenizer_; }
  Result<std::span<const TokenId>> encode(std::string_view text, EncodeOptions options);
  // The bytes of a token. id < n_vocab().
  std::string_view piece(TokenId id);

 private:
  Tokenizer tokenizer_{};
  Memory memory_{};
};

}  // namespace tarn::text
