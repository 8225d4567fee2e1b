#include "platform/base/assert.h"
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

// Visits the bytes of the text after lenient decoding; well-formed text stays as it is.
template <class Visit>
void each_prepared_byte(std::string_view text, Visit&& visit) {
  for (u64 at = 0; at < text.size();) {
    if (static_cast<u8>(text[at]) < 0x80) {
      visit(static_cast<u8>(text[at++]));
      continue;
    }
    const CodePoint point = decode_lenient(text, at);
    char bytes[4];
    const u32 n_bytes = encode_utf8(point.value, bytes);
    for (u32 i = 0; i < n_bytes; ++i) visit(static_cast<u8>(bytes[i]));
    at += point.n_bytes;
  }
}

// The token whose text is the whole pre-token, or kNoToken.
TokenId whole_word(const Tokenizer::Tables& tables, std::string_view word) {
  char chars[VocabLimits::kTokenBytesMax + 4];
  u64 n_bytes = 0;
  each_prepared_byte(word, [&](u8 byte) {
    if (n_bytes <= tables.text_bytes_max)
      n_bytes += encode_utf8(kCharOfByte[byte], chars + n_bytes);
  });
  if (n_bytes > tables.text_bytes_max) return kNoToken;
  const TokenId id = tables.index.find({chars, n_bytes});
  return id == kNoToken || tables.is_reserved(id) ? kNoToken : id;
}

Result<void> encode_word(const Tokenizer::Tables& tables, std::string_view word, Bump& scratch,
                         IdWriter& out) {
  if (tables.whole_words_first) {
    const TokenId id = whole_word(tables, word);
    if (id != kNoToken) return out.push(id);
  }
  u64 n_bytes = 0;
  each_prepared_byte(word, [&](u8) { ++n_bytes; });
  auto symbols = Symbols::allocate(scratch, n_bytes);
  if (!symbols) {
    return fail({.status = Status::invalid_request,
                 .hint = "the scratch for encoding is too small for the text's longest word; lend "
                         "encode_scratch_bytes()",
                 .figures = {{{"word bytes", n_bytes}, {"scratch bytes", scratch.free_bytes()}}}});
  }
  u32 at = 0;
  bool complete = true;
  each_prepared_byte(word, [&](u8 byte) {
    const TokenId id = tables.byte_ids[byte];
    complete = complete && id != kNoToken && !tables.is_reserved(id);
    symbols->put(at++, 1, id);
  });
  if (!complete) {
    return fail({.status = Status::invalid_request,
                 .hint = "this vocabulary has no token for a byte of the text",
                 .detail = Detail(word)});
  }
  const BpeRules rules{tables.merges};
  MergeQueue(rules, *symbols).run();
  for (at = 0; at < symbols->n_positions(); at = symbols->next(at)) {
    TARN_CHECK(out.push(symbols->ids[at]));
  }
  return {};
}

}  // namespace

Result<void> encode_bpe(const Tokenizer::Tables& tables, std::string_view text, Bump& scratch,
                        IdWriter& out) {
  Splitter splitter(tables.pre_tokenizer, text);
  const u64 mark = scratch.used_bytes();
  for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) {
    TARN_CHECK(encode_word(tables, word, scratch, out));
    scratch.rewind(mark);
  }
  return {};
}

}  // namespace tarn::text
