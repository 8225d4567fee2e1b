#include <algorithm>
#include <type_traits>

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

// A token that plain text may give, or kNoToken.
TokenId plain_token(const Tokenizer::Tables& tables, TokenId id) {
  return id == kNoToken || tables.is_reserved(id) ? kNoToken : id;
}

// An alphabet says what merges begin with, and how tokens spell prepared text. Its functions:
//
//   each(text, visit)  visits the bytes of the text after lenient decoding; well-formed text stays
//                      as it is. visit() is told where a character begins, else kInside. It
//                      returns whether to go on
//   spell(bytes, out)  the text of the token that stands for prepared bytes, at most two for each
//   put(...)           puts the symbols of prepared text, kNoToken for one without a token

enum class Spaces : u8 { stay, marked };

template <Spaces kSpaces, class Visit>
void each_decoded_byte(std::string_view text, Visit&& visit) {
  for (u64 at = 0; at < text.size();) {
    const bool is_mark = kSpaces == Spaces::marked && text[at] == ' ';
    if (static_cast<u8>(text[at]) < 0x80 && !is_mark) {
      if (!visit(text[at], at)) return;
      ++at;
      continue;
    }
    const CodePoint point =
        is_mark ? CodePoint{.value = kSpaceMarkPoint, .n_bytes = 1} : decode_lenient(text, at);
    char bytes[4];
    const u32 n_bytes = encode_utf8(point.value, bytes);
    for (u32 i = 0; i < n_bytes; ++i) {
      if (!visit(bytes[i], i == 0 ? at : kInside)) return;
    }
    at += point.n_bytes;
  }
}

// Bytes, which tokens spell as printable characters (unicode.h).
struct ByteAlphabet {
  static constexpr bool kMergesNewlines = true;

  template <class Visit>
  static void each(std::string_view text, Visit&& visit) {
    each_decoded_byte<Spaces::stay>(text, visit);
  }
  static u64 spell(std::string_view bytes, char* out) {
    u64 n_bytes = 0;
    for (const char byte : bytes) {
      n_bytes += encode_utf8(kCharOfByte[static_cast<u8>(byte)], out + n_bytes);
    }
    return n_bytes;
  }
  template <class EachByte>
  static void put(const Tokenizer::Tables& tables, const EachByte& each_byte, Symbols& symbols) {
    u32 at = 0;
    each_byte([&](char byte, u64) {
      symbols.put(at++, 1, plain_token(tables, tables.byte_ids[static_cast<u8>(byte)]));
      return true;
    });
  }
};

// Characters, with U+2581 for spaces. One without a token gives the tokens of its bytes.
struct CharAlphabet {
  static constexpr bool kMergesNewlines = false;  // a run of them that is a token is not merged

  template <class Visit>
  static void each(std::string_view text, Visit&& visit) {
    each_decoded_byte<Spaces::marked>(text, visit);
  }
  static u64 spell(std::string_view bytes, char* out) { return bytes.copy(out, bytes.size()); }
  template <class EachByte>
  static void put(const Tokenizer::Tables& tables, const EachByte& each_byte, Symbols& symbols) {
    char character[4];
    u32 at = 0, n_bytes = 0;
    each_byte([&](char byte, u64) {
      character[n_bytes++] = byte;
      if (n_bytes < utf8_bytes_by_lead(character[0])) return true;
      symbols.put(at, n_bytes, plain_token(tables, tables.index.find({character, n_bytes})));
      at += n_bytes;
      n_bytes = 0;
      return true;
    });
  }
};

template <class Alphabet>
u64 prepared_bytes(std::string_view text) {
  u64 n_bytes = 0;
  Alphabet::each(text, [&](char, u64) { return ++n_bytes, true; });
  return n_bytes;
}

// The token whose text is the whole pre-token, or kNoToken.
template <class Alphabet>
TokenId whole_word(const Tokenizer::Tables& tables, std::string_view word) {
  char chars[VocabLimits::kTokenBytesMax + 4];
  u64 n_bytes = 0;
  Alphabet::each(word, [&](char byte, u64) {
    n_bytes += Alphabet::spell({&byte, 1}, chars + n_bytes);
    return n_bytes <= tables.text_bytes_max;
  });
  if (n_bytes > tables.text_bytes_max) return kNoToken;
  return plain_token(tables, tables.index.find({chars, n_bytes}));
}

// The first piece of a word of more than `bytes_max` prepared bytes; empty: it cannot be cut.
template <class Alphabet>
std::string_view cut_word(const Tokenizer::Tables& tables, std::string_view word, u64 bytes_max,
                          Bump& scratch) {
  const u64 mark = scratch.used_bytes();
  const auto prepared = scratch.alloc<char>(bytes_max);
  const auto each_byte = [&](const auto& visit) { Alphabet::each(word, visit); };
  const auto is_token = [&](std::string_view bytes) {
    char chars[2 * VocabLimits::kTokenBytesMax];
    return tables.index.find({chars, Alphabet::spell(bytes, chars)}) != kNoToken;
  };
  const u64 n = prepared ? first_piece(*prepared, tables.text_bytes_max, each_byte, is_token) : 0;
  scratch.rewind(mark);
  return word.substr(0, n);
}

template <class Alphabet, class EachByte>
void merge(const Tokenizer::Tables& tables, const EachByte& each_byte, Symbols& symbols) {
  Alphabet::put(tables, each_byte, symbols);
  const BpeRules rules{tables.merges};
  MergeQueue(rules, symbols).run();
}

// Writes the ids of the characters' symbols before `end`. One without an id gives the ids of its
// bytes; a byte without one gives nothing.
template <class EachByte>
void push_symbols(const Tokenizer::Tables& tables, const Symbols& symbols, u64 end,
                  const EachByte& each_byte, IdWriter& out) {
  u32 next = 0;  // symbol
  u32 at = 0;
  bool is_spelled = false;
  each_byte([&](char byte, u64) {
    if (at == end) return false;
    if (at == next) {
      is_spelled = symbols.ids[next] == kNoToken;
      if (!is_spelled) out.push(symbols.ids[next]);
      next = symbols.next(next);
    }
    const TokenId id = is_spelled ? tables.byte_ids[static_cast<u8>(byte)] : kNoToken;
    if (plain_token(tables, id) != kNoToken) out.push(id);
    return ++at < end;
  });
}

// Encodes all of a piece; or a part of it, and opens a seam. Returns the bytes that it took.
template <class Alphabet>
Result<u64> encode_piece(const Tokenizer::Tables& tables, std::string_view piece, bool is_part,
                         Seam& seam, Bump& scratch, IdWriter& out) {
  const u64 mark = scratch.used_bytes(), n = prepared_bytes<Alphabet>(piece);
  auto symbols = Symbols::allocate(scratch, n);
  TARN_ASSERT(symbols.has_value());
  const auto each_byte = [&](const auto& visit) { Alphabet::each(piece, visit); };
  merge<Alphabet>(tables, each_byte, *symbols);
  const Taken taken =
      is_part ? part_of(*symbols, each_byte) : Taken{.prepared = n, .in_text = piece.size()};
  if constexpr (std::is_same_v<Alphabet, ByteAlphabet>) {
    for (u32 at = 0; at < taken.prepared; at = symbols->next(at)) {
      if (symbols->ids[at] != kNoToken) out.push(symbols->ids[at]);
    }
  } else {
    push_symbols(tables, *symbols, taken.prepared, each_byte, out);
  }
  const u64 first_end = symbols->widths[0];
  scratch.rewind(mark);
  const auto merge_both = [&](std::string_view text, Symbols& both) {
    const auto each = [&](const auto& visit) {
      for (const char byte : text) visit(byte, 0);
    };
    merge<Alphabet>(tables, each, both);
  };
  const bool follows = !seam.is_open() || seam.close(first_end, scratch, each_byte, merge_both);
  if (!follows || taken.in_text == 0) return cannot_cut(piece);
  if (is_part) seam.open(taken.last_symbol, taken.prepared, each_byte);
  return taken.in_text;
}

template <class Alphabet>
Result<void> encode_words(const Tokenizer::Tables& tables, std::string_view text, Bump& scratch,
                          IdWriter& out) {
  const u64 bytes_max = prepared_bytes_max(scratch.free_bytes());
  const auto fits = [&](std::string_view word) {
    return word.size() <= bytes_max / kPreparedBytesMax ||
           (word.size() <= bytes_max && prepared_bytes<Alphabet>(word) <= bytes_max);
  };
  const auto is_whole = [&](std::string_view word) {
    const bool is_merged = Alphabet::kMergesNewlines || decode_lenient(word, 0).value != '\n';
    return tables.whole_words_first || !is_merged;
  };
  Seam seam;
  Splitter splitter(tables.pre_tokenizer, text);
  for (std::string_view word = splitter.next(); !word.empty(); word = splitter.next()) {
    const TokenId id = is_whole(word) ? whole_word<Alphabet>(tables, word) : kNoToken;
    if (id != kNoToken) {
      out.push(id);
      continue;
    }
    bool is_tight = false;  // it was not to be cut
    while (!word.empty()) {
      std::string_view piece = word;
      if (!fits(word) && !is_tight) {
        piece = cut_word<Alphabet>(tables, word, bytes_max, scratch);
        is_tight = piece.empty();
      }
      const bool is_part = is_tight && !fits(word);
      const auto each_byte = [&](const auto& visit) { Alphabet::each(word, visit); };
      if (is_part) piece = word.substr(0, window_bytes(bytes_max, each_byte));
      if (piece.empty()) return cannot_cut(word);
      TARN_TRY(const u64 n, encode_piece<Alphabet>(tables, piece, is_part, seam, scratch, out));
      word.remove_prefix(n);
    }
  }
  return {};
}

}  // namespace

Result<void> encode_bpe(const Tokenizer::Tables& tables, std::string_view text, Bump& scratch,
                        IdWriter& out) {
  return tables.kind == VocabKind::bpe ? encode_words<ByteAlphabet>(tables, text, scratch, out)
                                       : encode_words<CharAlphabet>(tables, text, scratch, out);
}

}  // namespace tarn::text
