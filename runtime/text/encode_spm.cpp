#include <bit>

#include "runtime/text/encode.h"
#include "runtime/text/merge_queue.h"
#include "runtime/text/unicode.h"

namespace tarn::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Maps a float, never NaN or -0, to an unsigned number in descending order.
u32 descending(f32 score) {
  const u32 bits = std::bit_cast<u32>(score);
  const u32 ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

// A pair is the token with the joined text. Tokens with a special meaning are never made from text.
struct SpmRules {
  const Tokenizer::Tables& tables;
  std::string_view text;

  TokenId token(u64 at, u64 n_bytes) const {
    if (n_bytes > tables.text_bytes_max) return kNoToken;
    const TokenId id = tables.index.find(text.substr(at, n_bytes));
    if (id == kNoToken) return kNoToken;
    return tables.is_reserved(id) || tables.kind_of(id) == TokenKind::byte ? kNoToken : id;
  }
  u32 pair(const Symbols& symbols, u32 left, u32 right) const {
    static_assert(kNoPair == kNoToken);
    return token(left, symbols.widths[left] + symbols.widths[right]);
  }
  u32 key(u32 pair) const { return descending(tables.scores[pair]); }
  u32 result(u32 pair) const { return pair; }
};

// Copies the text to scratch, with every space as U+2581.
std::optional<std::string_view> mark_spaces(std::string_view text, bool space_first,
                                            Bump& scratch) {
  u64 n_spaces = space_first ? 1 : 0;
  for (const char c : text) n_spaces += c == ' ' ? u64{1} : u64{0};
  const u64 n_others = text.size() + (space_first ? 1 : 0) - n_spaces;
  const auto marked = scratch.alloc<char>(n_others + n_spaces * kSpaceMark.size());
  if (!marked) return std::nullopt;
  char* out = marked->data();
  const auto put = [&](std::string_view bytes) {
    for (const char c : bytes) *out++ = c;
  };
  if (space_first) put(kSpaceMark);
  for (const char& c : text) put(c == ' ' ? kSpaceMark : std::string_view(&c, 1));
  return std::string_view(marked->data(), marked->size());
}

// Encodes a character that has no token: as its bytes, or <unk>.
Result<void> fall_back(const Tokenizer::Tables& tables, std::string_view character, IdWriter& out) {
  bool complete = true;
  for (const char c : character) complete &= tables.byte_ids[static_cast<u8>(c)] != kNoToken;
  if (complete) {
    for (const char c : character) {
      TARN_CHECK(out.push(tables.byte_ids[static_cast<u8>(c)]));
    }
    return {};
  }
  if (tables.unknown != kNoToken) return out.push(tables.unknown);
  return fail({.status = Status::invalid_request,
               .hint = "this vocabulary has no token for a character of the text, and no <unk>",
               .detail = Detail(character)});
}

}  // namespace

Result<void> encode_spm(const Tokenizer::Tables& tables, std::string_view text, bool space_first,
                        Bump& scratch, IdWriter& out) {
  const u64 mark = scratch.used_bytes();
  const auto marked = mark_spaces(text, space_first, scratch);
  auto symbols = marked ? Symbols::allocate(scratch, marked->size()) : std::nullopt;
  if (!symbols) {
    return fail({.status = Status::invalid_request,
                 .hint = "the scratch for encoding is too small for this text; lend "
                         "encode_scratch_bytes()",
                 .figures = {{{"text bytes", text.size()}}}});
  }
  // Cuts characters by their first bytes alone, as the vocabularies' own tools do.
  for (u64 at = 0; at < marked->size();) {
    const u64 width = std::min<u64>(utf8_bytes_by_lead((*marked)[at]), marked->size() - at);
    symbols->put(static_cast<u32>(at), static_cast<u32>(width), kNoToken);
    at += width;
  }
  const SpmRules rules{tables, *marked};
  MergeQueue(rules, *symbols).run();
  for (u32 at = 0; at < symbols->n_positions(); at = symbols->next(at)) {
    const u32 width = symbols->widths[at];
    const TokenId merged = symbols->ids[at];
    const TokenId id = merged != kNoToken ? merged : rules.token(at, width);
    if (id != kNoToken) {
      TARN_CHECK(out.push(id));
    } else {
      TARN_CHECK(fall_back(tables, marked->substr(at, width), out));
    }
  }
  scratch.rewind(mark);
  return {};
}

}  // namespace tarn::text
