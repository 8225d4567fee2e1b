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

Unexpected cannot_cut(std::string_view text) {
  const u64 character_bytes = std::min<u64>(utf8_bytes_by_lead(text.front()), text.size());
  return fail({.status = Status::invalid_request,
               .reason = Reason::no_memory,
               .key = "text",
               .hint = "a run of the text is too long to be tokenized, and tokens of this "
                       "vocabulary join it everywhere: shorten the run that begins with this "
                       "character",
               .detail = Detail(text.substr(0, character_bytes)),
               .figures = {{{"bytes", text.size()}}}});
}

Unexpected exceeds_context(u64 n_tokens, u64 context_tokens, Counted counted) {
  return fail({.status = Status::invalid_request,
               .reason = Reason::context_too_long,
               .hint = "the session exceeds the available context size: shorten the text, or raise "
                       "-c (kv.context_tokens)",
               .figures = {{{"n_prompt_tokens", n_tokens},
                            {"n_ctx", context_tokens},
                            counted == Counted::estimated ? Figure{"estimated", 1} : Figure{}}}});
}

u32 Tokenizer::n_vocab() const { return tables_->n_vocab; }
u64 Tokenizer::piece_bytes_max() const { return tables_->text_bytes_max; }

bool Tokenizer::is_end(TokenId id) const {
  return id < tables_->n_vocab && (tables_->attributes[id] & Attribute::kEnd) != 0;
}

std::optional<TokenId> Tokenizer::first_token() const {
  return tables_->adds_bos ? std::optional(tables_->bos) : std::nullopt;
}

u64 Tokenizer::encode_scratch_bytes(u64 text_bytes) {
  const u64 n = text_bytes < VocabLimits::kTextBytesMax ? text_bytes : VocabLimits::kTextBytesMax;
  const u64 plain = plain_bytes(kPreparedBytesMax * n + kSpacePrefixBytes);
  // Matches stay in scratch while plain text is encoded; each uses the room of the text that it
  // matches.
  static_assert(special_window_bytes(plain_bytes(kPreparedBytesMax * 4096)) >= 4096);
  return plain + alignof(std::max_align_t);
}

Result<u64> Tokenizer::encode(std::string_view text, EncodeOptions options,
                              std::span<std::byte> scratch, std::span<TokenId> out) const {
  if (text.size() > VocabLimits::kTextBytesMax) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "text",
                 .hint = "the text is longer than the tokenizer's limit; split it",
                 .figures = {{{"text bytes", text.size()}, {"max", VocabLimits::kTextBytesMax}}}});
  }
  TARN_ASSERT(options.origins.empty() || options.origins.size() == text.size());
  Bump memory(scratch);
  IdWriter ids(out);
  const auto push_bos = [&](bool is_written) {
    const bool adds = options.add_special || options.add_bos;
    if (tables_->adds_bos && adds && !(is_written && options.may_have_bos)) ids.push(tables_->bos);
  };
  if (text.empty()) push_bos(false);

  u64 begin = 0;  // of the plain text after the last special token
  bool space_first = tables_->adds_space_prefix;
  bool eats_spaces = false;
  const auto encode_plain = [&](u64 end) -> Result<void> {
    while (eats_spaces && begin < end && is_c_space(text[begin])) ++begin;
    if (begin == end) return {};
    const std::string_view plain = text.substr(begin, end - begin);
    return tables_->kind == VocabKind::spm ? encode_spm(*tables_, plain, space_first, memory, ids)
                                           : encode_bpe(*tables_, plain, memory, ids);
  };
  for (u64 searched = 0; searched < text.size();) {
    TARN_TRY(const auto found, special_matches(*tables_, text, searched, options, memory));
    if (searched == 0) {
      const bool begins = !found.matches.empty() && found.matches[0].at == 0;
      push_bos(begins && found.matches[0].id == tables_->bos);
    }
    for (const SpecialMatch& match : found.matches) {
      TARN_CHECK(encode_plain(match.at));
      ids.push(match.id);
      begin = match.at + tables_->texts.at(match.id).size();
      space_first = tables_->adds_space_prefix;
      eats_spaces = (tables_->attributes[match.id] & Attribute::kEatsSpaces) != 0;
    }
    searched = found.end;
    memory.rewind(0);
  }
  TARN_CHECK(encode_plain(text.size()));
  if (options.add_special && tables_->adds_eos) ids.push(tables_->eos);
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

u64 Encoder::scratch_bytes(u64 context_tokens) {
  constexpr u64 kTokenBytes = 8;  // more than a token of any language stands for
  const u64 text_bytes = std::max(context_tokens * kTokenBytes, 16 * kKiB);
  return std::min(Tokenizer::encode_scratch_bytes(text_bytes), 2 * kMiB);
}

Result<u32> Encoder::ids_max(u64 text_bytes) const {
  if (text_bytes > VocabLimits::kTextBytesMax) {
    const u64 n = text_bytes / std::max<u64>(tokenizer_.piece_bytes_max(), 1);
    return exceeds_context(std::max(n, context_tokens() + 1), context_tokens(), Counted::estimated);
  }
  return static_cast<u32>(std::min<u64>(context_tokens(), Tokenizer::encode_ids_max(text_bytes)));
}

Result<u64> Encoder::encode_whole(std::string_view text, EncodeOptions options,
                                  std::span<TokenId> out) const {
  TARN_TRY(const u64 n, encode(text, options, out));
  if (n > out.size()) {
    return exceeds_context(n, context_tokens());
  }
  return n;
}

}  // namespace tarn::text
