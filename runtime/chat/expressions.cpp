// The parser's part that reads expressions.
#include <bit>
#include <charconv>
#include <cstring>

#include "runtime/chat/parser_support.h"

namespace tarn::chat {
namespace {

struct Binary {
  std::string_view sign;
  Op op;
};
// By precedence, the weakest first: what one level joins are expressions of the next.
constexpr Binary kSums[] = {{"+", Op::add}, {"-", Op::subtract}};
constexpr Binary kConcat[] = {{"~", Op::concat}};
constexpr Binary kProducts[] = {
    {"*", Op::multiply}, {"/", Op::divide}, {"//", Op::floor_divide}, {"%", Op::modulo}};
constexpr Binary kPowers[] = {{"**", Op::power}};
constexpr std::span<const Binary> kLevels[] = {kSums, kConcat, kProducts, kPowers};

constexpr Binary kComparisons[] = {{"==", Op::equal},  {"!=", Op::not_equal},
                                   {"<", Op::less},    {"<=", Op::less_equal},
                                   {">", Op::greater}, {">=", Op::greater_equal}};

Op find(std::span<const Binary> among, const Token& token) {
  for (const Binary& binary : among) {
    if (token.is_sign(binary.sign)) return binary.op;
  }
  return Op::none;
}

u32 low(u64 value) { return static_cast<u32>(value); }
u32 high(u64 value) { return static_cast<u32>(value >> 32); }

}  // namespace

Parsed ExpressionParser::tuple(bool conditional, bool in_parentheses, std::string_view end_name) {
  const u32 line = token_.line;
  List list;
  bool is_tuple = false;
  while (true) {
    const bool is_end = token_.type == TokenType::print_end ||
                        token_.type == TokenType::block_end || token_.is_sign(")") ||
                        (!end_name.empty() && token_.is_name(end_name));
    if (is_end) break;
    TARN_NODE(part, conditional ? expression() : logical(Op::or_));
    add(list, part);
    if (!take_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && list.first != kNoNode) return list.first;
  if (list.first == kNoNode && !in_parentheses) return unexpected();
  return make({.kind = NodeKind::tuple, .line = line, .a = list.first});
}

Parsed ExpressionParser::expression() {
  const Deeper deeper(depth_);
  if (deeper.is_too_deep()) return too_deep();
  return conditional();
}

Parsed ExpressionParser::conditional() {
  TARN_NODE(value, logical(Op::or_));
  while (token_.is_name("if")) {
    const u32 line = token_.line;
    advance();
    TARN_NODE(condition, logical(Op::or_));
    NodeIdx otherwise = kNoNode;
    if (take_name("else")) {
      TARN_NODE(other, expression());
      otherwise = other;
    }
    TARN_NODE(made, make({.kind = NodeKind::conditional,
                          .line = line,
                          .a = condition,
                          .b = value,
                          .c = otherwise}));
    value = made;
  }
  return value;
}

Parsed ExpressionParser::logical(Op op) {
  const auto part = [&] { return op == Op::or_ ? logical(Op::and_) : not_expression(); };
  TARN_NODE(left, part());
  while (token_.is_name(op == Op::or_ ? "or" : "and")) {
    const u32 line = token_.line;
    advance();
    TARN_NODE(right, part());
    TARN_NODE(made,
              make({.kind = NodeKind::binary, .op = op, .line = line, .a = left, .b = right}));
    left = made;
  }
  return left;
}

Parsed ExpressionParser::not_expression() {
  if (!token_.is_name("not")) return compare();
  const Deeper deeper(depth_);
  if (deeper.is_too_deep()) return too_deep();
  const u32 line = token_.line;
  advance();
  TARN_NODE(of, not_expression());
  return make({.kind = NodeKind::unary, .op = Op::not_, .line = line, .a = of});
}

Parsed ExpressionParser::compare() {
  const u32 line = token_.line;
  TARN_NODE(first, binary(0));
  List list;
  while (true) {
    Op op = find(kComparisons, token_);
    if (token_.is_name("in")) op = Op::in;
    if (token_.is_name("not") && after_.is_name("in")) {
      op = Op::not_in;
      advance();
    }
    if (op == Op::none) break;
    advance();
    TARN_NODE(with, binary(0));
    TARN_NODE(made, make({.kind = NodeKind::comparison, .op = op, .a = with}));
    add(list, made);
  }
  if (list.first == kNoNode) return first;
  return make({.kind = NodeKind::compare, .line = line, .a = first, .b = list.first});
}

Parsed ExpressionParser::binary(u32 level) {
  if (level == std::size(kLevels)) return unary(true);
  TARN_NODE(left, binary(level + 1));
  for (Op op = find(kLevels[level], token_); op != Op::none; op = find(kLevels[level], token_)) {
    const u32 line = token_.line;
    advance();
    TARN_NODE(right, binary(level + 1));
    TARN_NODE(made,
              make({.kind = NodeKind::binary, .op = op, .line = line, .a = left, .b = right}));
    left = made;
  }
  return left;
}

Parsed ExpressionParser::unary(bool with_filter) {
  const Deeper deeper(depth_);
  if (deeper.is_too_deep()) return too_deep();
  NodeIdx made = kNoNode;
  if (token_.is_sign("-") || token_.is_sign("+")) {
    const Op op = token_.is_sign("-") ? Op::negative : Op::positive;
    const u32 line = token_.line;
    advance();
    TARN_NODE(of, unary(false));
    TARN_NODE(signed_, make({.kind = NodeKind::unary, .op = op, .line = line, .a = of}));
    made = signed_;
  } else {
    TARN_NODE(first, primary());
    made = first;
  }
  TARN_NODE(whole, postfix(made));
  if (!with_filter) return whole;
  return filters(whole);
}

Parsed ExpressionParser::primary() {
  const Token token = token_;
  switch (token.type) {
    case TokenType::name: {
      advance();
      const bool is_true = token.text == "true" || token.text == "True";
      if (is_true || token.text == "false" || token.text == "False") {
        return make(
            {.kind = NodeKind::boolean, .line = token.line, .a = is_true ? u32{1} : u32{0}});
      }
      if (token.text == "none" || token.text == "None") {
        return make({.kind = NodeKind::none, .line = token.line});
      }
      TARN_NODE(idx, name(token.text));
      return make({.kind = NodeKind::name, .line = token.line, .a = idx});
    }
    case TokenType::text:
      return text();
    case TokenType::integer:
    case TokenType::real:
      return number();
    default:
      break;
  }
  if (take_sign("(")) {
    TARN_NODE(inner, tuple(true, true, ""));
    if (!want_sign(")")) return std::nullopt;
    return inner;
  }
  if (take_sign("[")) {
    TARN_NODE(items, list_until("]"));
    return make({.kind = NodeKind::list, .line = token.line, .a = items});
  }
  if (token.is_sign("{")) return dict();
  return unexpected();
}

// Literals beside each other are one text, as in Python.
Parsed ExpressionParser::text() {
  const u32 line = token_.line;
  const u32 begin = begin_of(token_.text);
  u32 n = static_cast<u32>(token_.text.size());
  advance();
  while (token_.type == TokenType::text) {
    std::memmove(memory_.source.data() + begin + n, token_.text.data(), token_.text.size());
    n += static_cast<u32>(token_.text.size());
    advance();
  }
  return make({.kind = NodeKind::text, .line = line, .a = begin, .b = n});
}

Parsed ExpressionParser::number() {
  const Token token = token_;
  advance();
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.type == TokenType::integer) {
    i64 value = 0;
    if (std::from_chars(begin, end, value).ec != std::errc()) return unknown(token.text);
    const u64 bits = static_cast<u64>(value);
    return make({.kind = NodeKind::integer, .line = token.line, .a = low(bits), .b = high(bits)});
  }
  f64 value = 0;
  if (std::from_chars(begin, end, value).ec != std::errc()) return unknown(token.text);
  const u64 bits = std::bit_cast<u64>(value);
  return make({.kind = NodeKind::real, .line = token.line, .a = low(bits), .b = high(bits)});
}

// Items with commas between them, up to a closing bracket. Returns the first; none if it is empty.
Parsed ExpressionParser::list_until(std::string_view end) {
  List list;
  while (!token_.is_sign(end)) {
    TARN_NODE(item, expression());
    add(list, item);
    if (!take_sign(",")) break;
  }
  if (!want_sign(end)) return std::nullopt;
  return list.first;
}

Parsed ExpressionParser::dict() {
  const u32 line = token_.line;
  advance();
  List list;
  while (!token_.is_sign("}")) {
    TARN_NODE(key, expression());
    if (!want_sign(":")) return std::nullopt;
    TARN_NODE(value, expression());
    TARN_NODE(pair, make({.kind = NodeKind::pair, .a = key, .b = value}));
    add(list, pair);
    if (!take_sign(",")) break;
  }
  if (!want_sign("}")) return std::nullopt;
  return make({.kind = NodeKind::dict, .line = line, .a = list.first});
}

Parsed ExpressionParser::postfix(NodeIdx of) {
  while (true) {
    if (token_.is_sign(".") || token_.is_sign("[")) {
      TARN_NODE(made, subscript(of));
      of = made;
    } else if (token_.is_sign("(")) {
      TARN_NODE(made, call(of));
      of = made;
    } else {
      return of;
    }
  }
}

Parsed ExpressionParser::filters(NodeIdx of) {
  while (true) {
    if (token_.is_sign("|")) {
      advance();
      TARN_NODE(made, filter(of));
      of = made;
    } else if (token_.is_name("is")) {
      advance();
      TARN_NODE(made, test(of));
      of = made;
    } else if (token_.is_sign("(")) {
      TARN_NODE(made, call(of));
      of = made;
    } else {
      return of;
    }
  }
}

Parsed ExpressionParser::filter(NodeIdx of) {
  const Token token = token_;
  if (token.type != TokenType::name) return unexpected("a filter's name");
  advance();
  if (token_.is_sign(".")) return unknown(token.text);
  NodeIdx given = kNoNode;
  if (take_sign("(")) {
    TARN_NODE(list, arguments());
    given = list;
  }
  TARN_NODE(called, name(token.text));
  return make({.kind = NodeKind::filter, .line = token.line, .a = of, .b = given, .c = called});
}

Parsed ExpressionParser::test(NodeIdx of) {
  const bool is_negated = take_name("not");
  const Token token = token_;
  if (token.type != TokenType::name) return unexpected("a test's name");
  advance();
  NodeIdx given = kNoNode;
  const bool is_word = token_.is_name("else") || token_.is_name("or") || token_.is_name("and");
  const bool begins_value = token_.type == TokenType::name || token_.type == TokenType::text ||
                            token_.type == TokenType::integer || token_.type == TokenType::real ||
                            token_.is_sign("[") || token_.is_sign("{");
  if (take_sign("(")) {
    TARN_NODE(list, arguments());
    given = list;
  } else if (begins_value && !is_word) {
    if (token_.is_name("is")) return unexpected();
    TARN_NODE(first, primary());
    TARN_NODE(whole, postfix(first));
    TARN_NODE(argument, make({.kind = NodeKind::argument, .a = whole}));
    given = argument;
  }
  TARN_NODE(called, name(token.text));
  TARN_NODE(made,
            make({.kind = NodeKind::test, .line = token.line, .a = of, .b = given, .c = called}));
  if (!is_negated) return made;
  return make({.kind = NodeKind::unary, .op = Op::not_, .line = token.line, .a = made});
}

Parsed ExpressionParser::subscript(NodeIdx of) {
  const u32 line = token_.line;
  if (take_sign(".")) {
    const Token token = token_;
    if (token.type == TokenType::integer) {
      TARN_NODE(idx, number());
      return make({.kind = NodeKind::item, .line = line, .a = of, .b = idx});
    }
    if (token.type != TokenType::name) return unexpected();
    advance();
    return make({.kind = NodeKind::attribute,
                 .line = line,
                 .a = of,
                 .b = begin_of(token.text),
                 .c = static_cast<u32>(token.text.size())});
  }
  advance();
  const auto is_slice_sign = [&] { return token_.is_sign(":") || token_.is_sign("]"); };
  TARN_NODE(key, is_slice_sign() ? Parsed(kNoNode) : expression());
  if (token_.is_sign(":")) {
    NodeIdx parts[] = {key, kNoNode, kNoNode};
    for (u32 i = 1; i < 3 && take_sign(":"); ++i) {
      TARN_NODE(part, is_slice_sign() ? Parsed(kNoNode) : expression());
      parts[i] = part;
    }
    TARN_NODE(
        slice,
        make({.kind = NodeKind::slice, .line = line, .a = parts[0], .b = parts[1], .c = parts[2]}));
    key = slice;
  }
  if (token_.is_sign(",")) return unknown("a tuple in brackets");
  if (key == kNoNode) return unexpected();
  if (!want_sign("]")) return std::nullopt;
  return make({.kind = NodeKind::item, .line = line, .a = of, .b = key});
}

Parsed ExpressionParser::call(NodeIdx of) {
  const u32 line = token_.line;
  advance();
  TARN_NODE(list, arguments());
  return make({.kind = NodeKind::call, .line = line, .a = of, .b = list});
}

Parsed ExpressionParser::arguments() {
  List list;
  u32 n = 0;
  while (!token_.is_sign(")")) {
    if (token_.is_sign("*") || token_.is_sign("**")) return unknown("* before an argument");
    if (++n > kArgumentsMax) return unknown("a call with so many arguments");
    Node node{.kind = NodeKind::argument, .line = token_.line};
    if (token_.type == TokenType::name && after_.is_sign("=")) {
      node.b = begin_of(token_.text);
      node.c = static_cast<u32>(token_.text.size());
      advance();
      advance();
    }
    TARN_NODE(value, expression());
    node.a = value;
    TARN_NODE(argument, make(node));
    add(list, argument);
    if (!take_sign(",")) break;
  }
  if (!want_sign(")")) return std::nullopt;
  return list.first;
}

}  // namespace tarn::chat
