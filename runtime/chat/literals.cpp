// The part of the parser that reads texts and numbers.
#include <bit>
#include <charconv>
#include <cstring>

#include "runtime/chat/parser_support.h"

namespace tarn::chat {
namespace {

u32 low(u64 value) { return static_cast<u32>(value); }
u32 high(u64 value) { return static_cast<u32>(value >> 32); }

}  // namespace

// Literals beside each other are one text, as in Python.
Parsed ExpressionParser::text() {
  const u32 line = in_.token.line;
  const u32 begin = in_.begin_of(in_.token.text);
  u32 n = static_cast<u32>(in_.token.text.size());
  in_.advance();
  while (in_.token.type == TokenType::text) {
    std::memmove(in_.memory.source.data() + begin + n, in_.token.text.data(),
                 in_.token.text.size());
    n += static_cast<u32>(in_.token.text.size());
    in_.advance();
  }
  return in_.make({.kind = NodeKind::text, .line = line, .a = begin, .b = n});
}

Parsed ExpressionParser::number() {
  const Token token = in_.token;
  in_.advance();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.type == TokenType::integer) {
    i64 value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) return in_.unknown(token.text);
    const u64 bits = static_cast<u64>(value);
    return in_.make(
        {.kind = NodeKind::integer, .line = token.line, .a = low(bits), .b = high(bits)});
  }
  f64 value = 0;
  if (std::from_chars(begin, end, value).ec != std::errc()) return in_.unknown(token.text);
  const u64 bits = std::bit_cast<u64>(value);
  return in_.make({.kind = NodeKind::real, .line = token.line, .a = low(bits), .b = high(bits)});
}

}  // namespace tarn::chat
