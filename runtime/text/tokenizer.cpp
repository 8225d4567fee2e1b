#include "runtime/text/tokenizer.h"

#include "platform/base/assert.h"
#include "platform/base/checked.h"
#include "runtime/text/encode.h"
#include "runtime/text/merge_queue.h"
#include "runtime/text/tables.h"
#include "runtime/text/unicode.h"

namespace tarn::text {
namespace {

// White space of the C locale, which a token with kEatsSpaces takes.
bool is_c_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

u8 hex_value(char digit) {
  return static_cast<u8>(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
}

// The bytes that a byte-level BPE's text represents. A character that represents none stays as it
// is.
u64 decode_byte_chars(std::string_view text, std::span<char> out) {
  u64 n = 0;
  for (u64 at = 0; at < text.size();) {
    const CodePoint point = decode_lenient(text, at);
    const bool stands = point.value < kByteChars && kByteOfChar[point.value] != kNoByte;
    if (stands) {
      out[n++] = static_cast<char>(kByteOfChar[point.value]);
    } else {
      for (u32 i = 0; i < point.n_bytes; ++i) out[n++] = text[at + i];
    }
    at += point.n_bytes;
  }
  return n;
}

// The bytes of an SPM's text, with spaces for its space marks.
u64 decode_space_marks(std::string_view text, std::span<char> out) {
  constexpr std::string_view kSpaceMark = "\xE2\x96\x81";
  u64 n = 0;
  for (u64 at = 0; at < text.size();) {
    const bool mark = text.substr(at, kSpaceMark.size()) == kSpaceMark;
    out[n++] = mark ? ' ' : text[at];
    at += mark ? kSpaceMark.size() : 1;
  }
  return n;
}

}  // namespace

u32 Tokenizer::n_vocab() const { return tables_->n_vocab; }
u64 Tokenizer::piece_bytes_max() const { return tables_->text_bytes_max; }

bool Tokenizer::is_end(TokenId id) const {
  return id < tables_->n_vocab && (tables_->attributes[id] & Attribute::kEnd) != 0;
}

u64 Tokenizer::encode_scratch_bytes(u64 text_bytes) {
  const u64 n = text_bytes < VocabLimits::kTextBytesMax ? text_bytes : VocabLimits::kTextBytesMax;
  const u64 n_prepared = kPreparedBytesMax * n + kSpacePrefixBytes;
  const u64 plain_bytes = n_prepared + Symbols::bytes(n_prepared);
  const u64 special_bytes = special_matches_bytes(n);
  // Matches stay in scratch while plain text is encoded; each uses the room of the text that it
  // matches.
  return (plain_bytes > special_bytes ? plain_bytes : special_bytes) + alignof(std::max_align_t);
}

Result<u64> Tokenizer::encode(std::string_view text, EncodeOptions options,
                              std::span<std::byte> scratch, std::span<TokenId> out) const {
  if (text.size() > VocabLimits::kTextBytesMax) {
    return fail({.status = Status::invalid_request,
                 .hint = "the text is longer than the tokenizer's limit; split it",
                 .figures = {{{"text bytes", text.size()}, {"max", VocabLimits::kTextBytesMax}}}});
  }
  TARN_ASSERT(options.origins.empty() || options.origins.size() == text.size());
  Bump memory(scratch);
  IdWriter ids(out);
  TARN_TRY(const auto matches, special_matches(*tables_, text, options, memory));
  const bool has_bos = !matches.empty() && matches[0].at == 0 && matches[0].id == tables_->bos;
  if (tables_->adds_bos && (options.add_special || (options.add_bos && !has_bos))) {
    TARN_CHECK(ids.push(tables_->bos));
  }

  bool space_first = tables_->adds_space_prefix;  // at the start and after a special token
  u64 at = 0;
  for (u64 i = 0; i <= matches.size(); ++i) {
    const u64 end = i < matches.size() ? matches[i].at : text.size();
    if (end > at) {
      const std::string_view plain = text.substr(at, end - at);
      TARN_CHECK(tables_->kind == VocabKind::bpe
                     ? encode_bpe(*tables_, plain, memory, ids)
                     : encode_spm(*tables_, plain, space_first, memory, ids));
      space_first = false;
    }
    if (i == matches.size()) break;
    const TokenId id = matches[i].id;
    TARN_CHECK(ids.push(id));
    space_first = tables_->adds_space_prefix;
    at = end + tables_->texts.at(id).size();
    if ((tables_->attributes[id] & Attribute::kEatsSpaces) != 0) {
      const u64 next = i + 1 < matches.size() ? matches[i + 1].at : text.size();
      while (at < next && is_c_space(text[at])) ++at;
    }
  }
  if (options.add_special && tables_->adds_eos) {
    TARN_CHECK(ids.push(tables_->eos));
  }
  return ids.n();
}

std::string_view Tokenizer::special_text(SpecialToken which) const {
  const TokenId ids[] = {tables_->bos, tables_->eos, tables_->unknown, tables_->padding};
  const TokenId id = ids[static_cast<u64>(which)];
  return id == kNoToken ? std::string_view() : tables_->texts.at(id);
}

u64 Tokenizer::piece(TokenId id, bool special, std::span<char> out) const {
  TARN_ASSERT(id < tables_->n_vocab);
  const std::string_view text = tables_->texts.at(id);
  TARN_ASSERT(out.size() >= text.size());
  switch (tables_->kind_of(id)) {
    case TokenKind::undefined:
    case TokenKind::unused:
      return 0;
    case TokenKind::unknown:
    case TokenKind::control:
      if (!special) return 0;
      [[fallthrough]];
    case TokenKind::user_defined:
      return text.copy(out.data(), text.size());
    case TokenKind::byte:
      out[0] = static_cast<char>(hex_value(text[3]) << 4 | hex_value(text[4]));
      return 1;
    case TokenKind::normal:
      break;
  }
  return tables_->kind == VocabKind::bpe ? decode_byte_chars(text, out)
                                         : decode_space_marks(text, out);
}

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

}  // namespace tarn::text
