#include "runtime/text/encoder.h"

namespace tarn::text {

Result<std::span<const TokenId>> Encoder::encode(std::string_view text, EncodeOptions options) {
  if (text.size() > memory_.text_bytes_max) {
    return fail({.status = Status::invalid_request,
                 .hint = memory_.is_capped
                             ? "the text is longer than one call takes (engine.text_bytes_max): "
                               "cut it at line breaks and tokenize the pieces one by one"
                             : "the text is longer than the context could hold: shorten it, "
                               "or raise -c (kv.context_tokens)",
                 .figures = {{{"bytes", text.size()}, {"limit", memory_.text_bytes_max}}}});
  }
  TARN_TRY(const u64 n, tokenizer_.encode(text, options, memory_.scratch, memory_.ids));
  return std::span<const TokenId>(memory_.ids).first(n);
}

std::string_view Encoder::piece(TokenId id) {
  return {memory_.piece.data(), tokenizer_.piece(id, /*special=*/true, memory_.piece)};
}

}  // namespace tarn::text
