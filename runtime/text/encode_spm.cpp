#include <algorithm>
#include <bit>

#include "platform/base/assert.h"
#include "runtime/text/cut.h"
#include "runtime/text/encode.h"
#include "runtime/text/merge_queue.h"
#include "runtime/text/seam.h"
#include "runtime/text/unicode.h"

namespace tarn::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

// Long texts are cut into pieces of this size, whose symbols stay in the cache.
constexpr u64 kPieceBytes = 8 * kKiB;

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

u64 marked_bytes(std::string_view text, bool space_first) {
  const u64 n_spaces = static_cast<u64>(std::count(text.begin(), text.end(), ' '));
  return text.size() + n_spaces * (kSpaceMark.size() - 1) + (space_first ? kSpaceMark.size() : 0);
}

// Copies the text to scratch, with every space as U+2581.
std::optional<std::string_view> mark_spaces(std::string_view text, bool space_first,
                                            Bump& scratch) {
  const auto marked = scratch.alloc<char>(marked_bytes(text, space_first));
  if (!marked) return std::nullopt;
  char* out = marked->data();
  const auto put = [&](std::string_view bytes) {
    for (const char c : bytes) *out++ = c;
  };
  if (space_first) put(kSpaceMark);
  for (const char& c : text) put(c == ' ' ? kSpaceMark : std::string_view(&c, 1));
  return std::string_view(marked->data(), marked->size());
}

// Visits the bytes of the text as mark_spaces() copies it. A piece may begin where a character
// does, but not inside a space's mark.
template <class Visit>
void each_marked_byte(std::string_view text, bool space_first, Visit&& visit) {
  u64 next = space_first ? kSpaceMark.size() : 0;  // where the next character begins
  u64 at = 0;
  const auto visit_all = [&](std::string_view bytes, u64 begin) {
    for (const char& byte : bytes) {
      const bool begins = at == next;
      if (begins) next += utf8_bytes_by_lead(byte);
      if (!visit(byte, begins && &byte == bytes.data() ? begin : kInside)) return false;
      ++at;
    }
    return true;
  };
  if (space_first && !visit_all(kSpaceMark, 0)) return;
  for (u64 i = 0; i < text.size(); ++i) {
    if (!visit_all(text[i] == ' ' ? kSpaceMark : text.substr(i, 1), i)) return;
  }
}

// Encodes a character that has no token: as its bytes, or <unk>.
Result<void> fall_back(const Tokenizer::Tables& tables, std::string_view character, IdWriter& out) {
  bool complete = true;
  for (const char c : character) complete &= tables.byte_ids[static_cast<u8>(c)] != kNoToken;
  if (complete) {
    for (const char c : character) out.push(tables.byte_ids[static_cast<u8>(c)]);
    return {};
  }
  if (tables.unknown == kNoToken) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "text",
                 .hint = "this vocabulary has no token for a character of the text, and no <unk>",
                 .detail = Detail(character)});
  }
  out.push(tables.unknown);
  return {};
}

// Cuts characters by their first bytes alone, as the vocabularies' own tools do, and joins them.
void merge(const SpmRules& rules, Symbols& symbols) {
  const std::string_view marked = rules.text;
  for (u64 at = 0; at < marked.size();) {
    const u64 width = std::min<u64>(utf8_bytes_by_lead(marked[at]), marked.size() - at);
    symbols.put(static_cast<u32>(at), static_cast<u32>(width), kNoToken);
    at += width;
  }
  MergeQueue(rules, symbols).run();
}

// Encodes all of a text; or a part of it, and opens a seam. Returns the bytes that it took.
Result<u64> encode_piece(const Tokenizer::Tables& tables, std::string_view text, bool space_first,
                         bool is_part, Seam& seam, Bump& scratch, IdWriter& out) {
  const u64 mark = scratch.used_bytes();
  const auto marked = mark_spaces(text, space_first, scratch);
  auto symbols = marked ? Symbols::allocate(scratch, marked->size()) : std::nullopt;
  TARN_ASSERT(symbols.has_value());
  const SpmRules rules{tables, *marked};
  merge(rules, *symbols);
  const auto each_byte = [&](const auto& visit) { each_marked_byte(text, space_first, visit); };
  const Taken taken = is_part ? part_of(*symbols, each_byte)
                              : Taken{.prepared = marked->size(), .in_text = text.size()};
  for (u32 at = 0; at < taken.prepared; at = symbols->next(at)) {
    const u32 width = symbols->widths[at];
    const TokenId merged = symbols->ids[at];
    const TokenId id = merged != kNoToken ? merged : rules.token(at, width);
    if (id != kNoToken) {
      out.push(id);
    } else {
      TARN_CHECK(fall_back(tables, marked->substr(at, width), out));
    }
  }
  const u64 first_end = symbols->widths[0];
  scratch.rewind(mark);
  const auto merge_both = [&](std::string_view both, Symbols& two) { merge({tables, both}, two); };
  const bool follows = !seam.is_open() || seam.close(first_end, scratch, each_byte, merge_both);
  if (!follows || taken.in_text == 0) return cannot_cut(text);
  if (is_part) seam.open(taken.last_symbol, taken.prepared, each_byte);
  return taken.in_text;
}

// The bytes of the first piece of a text, of at most `bytes_max` marked ones; 0: it cannot be cut.
u64 cut_text(const Tokenizer::Tables& tables, std::string_view text, bool space_first,
             u64 bytes_max, Bump& scratch) {
  const u64 mark = scratch.used_bytes();
  const auto marked = scratch.alloc<char>(bytes_max);
  TARN_ASSERT(marked.has_value());
  const u64 n = first_piece(
      *marked, tables.text_bytes_max,
      [&](const auto& visit) { each_marked_byte(text, space_first, visit); },
      [&](std::string_view bytes) { return tables.index.find(bytes) != kNoToken; });
  scratch.rewind(mark);
  return n;
}

}  // namespace

Result<void> encode_spm(const Tokenizer::Tables& tables, std::string_view text, bool space_first,
                        Bump& scratch, IdWriter& out) {
  const u64 bytes_max = prepared_bytes_max(scratch.free_bytes());
  Seam seam;
  bool is_tight = false;  // it was not to be cut
  while (!text.empty()) {
    const bool fits = text.size() <= bytes_max && marked_bytes(text, space_first) <= bytes_max;
    const u64 small_max = std::min(bytes_max, kPieceBytes);
    u64 n = 0;
    if (fits && text.size() <= small_max) n = text.size();
    if (n == 0 && !is_tight) n = cut_text(tables, text, space_first, small_max, scratch);
    if (n == 0 && fits) n = text.size();
    if (n == 0 && !is_tight) n = cut_text(tables, text, space_first, bytes_max, scratch);
    is_tight = n == 0;
    const auto each_byte = [&](const auto& visit) { each_marked_byte(text, space_first, visit); };
    if (is_tight) n = window_bytes(bytes_max, each_byte);
    if (n == 0) return cannot_cut(text);
    TARN_TRY(n, encode_piece(tables, text.substr(0, n), space_first, is_tight, seam, scratch, out));
    text.remove_prefix(n);
    space_first = false;
  }
  return {};
}

}  // namespace tarn::text
