#include "platform/base/assert.h"
#include "runtime/text/cut.h"
#include "runtime/text/encode.h"
#include "runtime/text/merge_queue.h"
#include "runtime/text/splitter.h"

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

// The first piece of a word of more than `bytes_max` prepared bytes.
Result<std::string_view> cut_word(const Tokenizer::Tables& tables, std::string_view word,
                                  u64 bytes_max, Bump& scratch) {
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
  if (n == 0) return cannot_cut(word, bytes_max);
  return word.substr(0, n);
}

Result<void> encode_piece(const Tokenizer::Tables& tables, std::string_view piece, Bump& scratch,
                          IdWriter& out) {
  const u64 mark = scratch.used_bytes();
  auto symbols = Symbols::allocate(scratch, prepared_bytes(piece));
  TARN_ASSERT(symbols.has_value());
  u32 at = 0;
  bool complete = true;
  each_prepared_byte(piece, [&](char byte, u64) {
    const TokenId id = tables.byte_ids[static_cast<u8>(byte)];
    complete = complete && id != kNoToken && !tables.is_reserved(id);
    symbols->put(at++, 1, id);
    return true;
  });
  if (!complete) {
    return fail({.status = Status::invalid_request,
                 .reason = Reason::bad_field,
                 .key = "text",
                 .hint = "this vocabulary has no token for a byte of the text",
                 .detail = Detail(piece)});
  }
  const BpeRules rules{tables.merges};
  MergeQueue(rules, *symbols).run();
  for (at = 0; at < symbols->n_positions(); at = symbols->next(at)) out.push(symbols->ids[at]);
  scratch.rewind(mark);
  return {};
}

}  // namespace

Result<void> encode_bpe(const Tokenizer::Tables& tables, std::string_view text, Bump& scratch,
                        IdWriter& out) {
  const u64 bytes_max = prepared_bytes_max(scratch.free_bytes());
  const auto fits = [&](std::string_view word) {
    return word.size() <= bytes_max / kPreparedBytesMax ||
           (word.size() <= bytes_max && prepared_bytes(word) <= bytes_max);
  };
  Splitter splitter(tables.pre_tokenizer, text);
  for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) {
    const TokenId id = tables.whole_words_first ? whole_word(tables, word) : kNoToken;
    if (id != kNoToken) {
      out.push(id);
      continue;
    }
    while (!fits(word)) {
      TARN_TRY(const auto piece, cut_word(tables, word, bytes_max, scratch));
      TARN_CHECK(encode_piece(tables, piece, scratch, out));
      word.remove_prefix(piece.size());
    }
    TARN_CHECK(encode_piece(tables, word, scratch, out));
  }
  return {};
}

}  // namespace tarn::text
