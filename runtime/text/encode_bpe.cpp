#include "platform/base/assert.h"
#include "runtime/text/cut.h"
#include "runtime/text/encode.h"
#include "runtime/text/merge_queue.h"
#include "runtime/text/seam.h"
#include "runtime/text/splitter.h"
#include "runtime/text/unicode.h"

namespace tarn::text {
namespace {

struct BpeRules {
  const MergeIndex& merges;

  u32 pair(const Symbols& symbols, u32 left, u32 right) const {
    static_assert(kNoPair == MergeIndex::kNoSlot);
    return merges.find(symbols.ids[left], symbols.ids[right]);
  }
  u32 key(u32 pair) const { return merges.at(pair).rank; }
  u32 result(u32 pair) const { return merges.at(pair).result; }
};

// Visits the bytes of the text after lenient decoding; well-formed text stays as it is. visit() is
// told where a character begins, else kInside, and returns whether to go on.
template <class Visit>
void each_prepared_byte(std::string_view text, Visit&& visit) {
  for (u64 at = 0; at < text.size();) {
    if (static_cast<u8>(text[at]) < 0x80) {
      if (!visit(text[at], at)) return;
      ++at;
      continue;
    }
    const CodePoint point = decode_lenient(text, at);
    char bytes[4];
    const u32 n_bytes = encode_utf8(point.value, bytes);
    for (u32 i = 0; i < n_bytes; ++i) {
      if (!visit(bytes[i], i == 0 ? at : kInside)) return;
    }
    at += point.n_bytes;
  }
}

u32 put_char_of(char byte, char* out) {
  return encode_utf8(kCharOfByte[static_cast<u8>(byte)], out);
}

// The token whose text is the whole pre-token, or kNoToken.
TokenId whole_word(const Tokenizer::Tables& tables, std::string_view word) {
  char chars[VocabLimits::kTokenBytesMax + 4];
  u64 n_bytes = 0;
  each_prepared_byte(word, [&](char byte, u64) {
    n_bytes += put_char_of(byte, chars + n_bytes);
    return n_bytes <= tables.text_bytes_max;
  });
  if (n_bytes > tables.text_bytes_max) return kNoToken;
  const TokenId id = tables.index.find({chars, n_bytes});
  return id == kNoToken || tables.is_reserved(id) ? kNoToken : id;
}

u64 prepared_bytes(std::string_view text) {
  u64 n_bytes = 0;
  each_prepared_byte(text, [&](char, u64) { return ++n_bytes, true; });
  return n_bytes;
}

// The first piece of a word of more than `bytes_max` prepared bytes; empty: it cannot be cut.
std::string_view cut_word(const Tokenizer::Tables& tables, std::string_view word, u64 bytes_max,
                          Bump& scratch) {
  const u64 mark = scratch.used_bytes();
  const auto prepared = scratch.alloc<char>(bytes_max);
  const u64 n = !prepared ? 0
                          : first_piece(
                                *prepared, tables.text_bytes_max,
                                [&](const auto& visit) { each_prepared_byte(word, visit); },
                                [&](std::string_view bytes) {
                                  char chars[2 * VocabLimits::kTokenBytesMax];
                                  u64 n_bytes = 0;
                                  for (const char byte : bytes)
                                    n_bytes += put_char_of(byte, chars + n_bytes);
                                  return tables.index.find({chars, n_bytes}) != kNoToken;
                                });
  scratch.rewind(mark);
  return word.substr(0, n);
}

// Returns whether the vocabulary has a token for each byte.
template <class EachByte>
bool merge(const Tokenizer::Tables& tables, const EachByte& each_byte, Symbols& symbols) {
  u32 at = 0;
  bool complete = true;
  each_byte([&](char byte, u64) {
    const TokenId id = tables.byte_ids[static_cast<u8>(byte)];
    complete = complete && id != kNoToken && !tables.is_reserved(id);
    symbols.put(at++, 1, id);
    return true;
  });
  const BpeRules rules{tables.merges};
  if (complete) MergeQueue(rules, symbols).run();
  return complete;
}

// Encodes all of a piece; or a part of it, and opens a seam. Returns the bytes that it took.
Result<u64> encode_piece(const Tokenizer::Tables& tables, std::string_view piece, bool is_part,
                         Seam& seam, Bump& scratch, IdWriter& out) {
  const u64 mark = scratch.used_bytes(), n = prepared_bytes(piece);
  auto symbols = Symbols::allocate(scratch, n);
  TARN_ASSERT(symbols.has_value());
  const auto each_byte = [&](const auto& visit) { each_prepared_byte(piece, visit); };
  if (!merge(tables, each_byte, *symbols)) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "text",
                 .hint = "this vocabulary has no token for a byte of the text",
                 .detail = Detail(piece)});
  }
  const Taken taken =
      is_part ? part_of(*symbols, each_byte) : Taken{.prepared = n, .in_text = piece.size()};
  for (u32 at = 0; at < taken.prepared; at = symbols->next(at)) out.push(symbols->ids[at]);
  const u64 first_end = symbols->widths[0];
  scratch.rewind(mark);
  const auto merge_both = [&](std::string_view text, Symbols& both) {
    const auto each = [&](const auto& visit) {
      for (const char byte : text) visit(byte, 0);
    };
    merge(tables, each, both);
  };
  const bool follows = !seam.is_open() || seam.close(first_end, scratch, each_byte, merge_both);
  if (!follows || taken.in_text == 0) return cannot_cut(piece);
  if (is_part) seam.open(taken.last_symbol, taken.prepared, each_byte);
  return taken.in_text;
}

}  // namespace

Result<void> encode_bpe(const Tokenizer::Tables& tables, std::string_view text, Bump& scratch,
                        IdWriter& out) {
  const u64 bytes_max = prepared_bytes_max(scratch.free_bytes());
  const auto fits = [&](std::string_view word) {
    return word.size() <= bytes_max / kPreparedBytesMax ||
           (word.size() <= bytes_max && prepared_bytes(word) <= bytes_max);
  };
  Seam seam;
  Splitter splitter(tables.pre_tokenizer, text);
  for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) {
    const TokenId id = tables.whole_words_first ? whole_word(tables, word) : kNoToken;
    if (id != kNoToken) {
      out.push(id);
      continue;
    }
    bool is_tight = false;  // it was not to be cut
    while (!word.empty()) {
      std::string_view piece = word;
      if (!fits(word) && !is_tight) {
        piece = cut_word(tables, word, bytes_max, scratch);
        is_tight = piece.empty();
      }
      const bool is_part = is_tight && !fits(word);
      const auto each_byte = [&](const auto& visit) { each_prepared_byte(word, visit); };
      if (is_part) piece = word.substr(0, window_bytes(bytes_max, each_byte));
      if (piece.empty()) return cannot_cut(word);
      TARN_TRY(const u64 n, encode_piece(tables, piece, is_part, seam, scratch, out));
      word.remove_prefix(n);
    }
  }
  return {};
}

}  // namespace tarn::text
