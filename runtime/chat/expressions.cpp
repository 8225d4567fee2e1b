// The parser's part that reads expressions.
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

}  // namespace

Parsed ExpressionParser::tuple(bool conditional, bool in_parentheses, std::string_view end_name) {
  const u32 line = in_.token.line;
  List list;
  bool is_tuple = false;
  while (true) {
    const bool is_end = in_.token.type == TokenType::print_end ||
                        in_.token.type == TokenType::block_end || in_.token.is_sign(")") ||
                        (!end_name.empty() && in_.token.is_name(end_name));
    if (is_end) break;
    TARN_NODE(part, conditional ? expression() : logical(Op::or_));
    in_.add(list, part);
    if (!in_.take_sign(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && list.first != kNoNode) return list.first;
  if (list.first == kNoNode && !in_parentheses) return in_.unexpected();
  return in_.make({.kind = NodeKind::tuple, .line = line, .a = list.first});
}

Parsed ExpressionParser::expression() {
  const Deeper deeper(in_.depth);
  if (deeper.is_too_deep()) return in_.too_deep();
  return conditional();
}

Parsed ExpressionParser::conditional() {
  TARN_NODE(value, logical(Op::or_));
  while (in_.token.is_name("if")) {
    const u32 line = in_.token.line;
    in_.advance();
    TARN_NODE(condition, logical(Op::or_));
    NodeIdx otherwise = kNoNode;
    if (in_.take_name("else")) {
      TARN_NODE(other, expression());
      otherwise = other;
    }
    TARN_NODE(made, in_.make({.kind = NodeKind::conditional,
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
  while (in_.token.is_name(op == Op::or_ ? "or" : "and")) {
    const u32 line = in_.token.line;
    in_.advance();
    TARN_NODE(right, part());
    TARN_NODE(made,
              in_.make({.kind = NodeKind::binary, .op = op, .line = line, .a = left, .b = right}));
    left = made;
  }
  return left;
}

Parsed ExpressionParser::not_expression() {
  if (!in_.token.is_name("not")) return compare();
  const Deeper deeper(in_.depth);
  if (deeper.is_too_deep()) return in_.too_deep();
  const u32 line = in_.token.line;
  in_.advance();
  TARN_NODE(of, not_expression());
  return in_.make({.kind = NodeKind::unary, .op = Op::not_, .line = line, .a = of});
}

Parsed ExpressionParser::compare() {
  const u32 line = in_.token.line;
  TARN_NODE(first, binary(0));
  List list;
  while (true) {
    Op op = find(kComparisons, in_.token);
    if (in_.token.is_name("in")) op = Op::in;
    if (in_.token.is_name("not") && in_.after.is_name("in")) {
      op = Op::not_in;
      in_.advance();
    }
    if (op == Op::none) break;
    in_.advance();
    TARN_NODE(with, binary(0));
    TARN_NODE(made, in_.make({.kind = NodeKind::comparison, .op = op, .a = with}));
    in_.add(list, made);
  }
  if (list.first == kNoNode) return first;
  return in_.make({.kind = NodeKind::compare, .line = line, .a = first, .b = list.first});
}

Parsed ExpressionParser::binary(u32 level) {
  if (level == std::size(kLevels)) return unary(true);
  TARN_NODE(left, binary(level + 1));
  for (Op op = find(kLevels[level], in_.token); op != Op::none;
       op = find(kLevels[level], in_.token)) {
    const u32 line = in_.token.line;
    in_.advance();
    TARN_NODE(right, binary(level + 1));
    TARN_NODE(made,
              in_.make({.kind = NodeKind::binary, .op = op, .line = line, .a = left, .b = right}));
    left = made;
  }
  return left;
}

Parsed ExpressionParser::unary(bool with_filter) {
  const Deeper deeper(in_.depth);
  if (deeper.is_too_deep()) return in_.too_deep();
  NodeIdx made = kNoNode;
  if (in_.token.is_sign("-") || in_.token.is_sign("+")) {
    const Op op = in_.token.is_sign("-") ? Op::negative : Op::positive;
    const u32 line = in_.token.line;
    in_.advance();
    TARN_NODE(of, unary(false));
    TARN_NODE(signed_, in_.make({.kind = NodeKind::unary, .op = op, .line = line, .a = of}));
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
  const Token token = in_.token;
  switch (token.type) {
    case TokenType::name: {
      in_.advance();
      const bool is_true = token.text == "true" || token.text == "True";
      if (is_true || token.text == "false" || token.text == "False") {
        return in_.make(
            {.kind = NodeKind::boolean, .line = token.line, .a = is_true ? u32{1} : u32{0}});
      }
      if (token.text == "none" || token.text == "None") {
        return in_.make({.kind = NodeKind::none, .line = token.line});
      }
      TARN_NODE(idx, in_.name(token.text));
      return in_.make({.kind = NodeKind::name, .line = token.line, .a = idx});
    }
    case TokenType::text:
      return text();
    case TokenType::integer:
    case TokenType::real:
      return number();
    default:
      break;
  }
  if (in_.take_sign("(")) {
    TARN_NODE(inner, tuple(true, true, ""));
    if (!in_.want_sign(")")) return std::nullopt;
    return inner;
  }
  if (in_.take_sign("[")) {
    TARN_NODE(items, list_until("]"));
    return in_.make({.kind = NodeKind::list, .line = token.line, .a = items});
  }
  if (token.is_sign("{")) return dict();
  return in_.unexpected();
}

// Items with commas between them, up to a closing bracket. Returns the first; none if it is empty.
Parsed ExpressionParser::list_until(std::string_view end) {
  List list;
  while (!in_.token.is_sign(end)) {
    TARN_NODE(item, expression());
    in_.add(list, item);
    if (!in_.take_sign(",")) break;
  }
  if (!in_.want_sign(end)) return std::nullopt;
  return list.first;
}

Parsed ExpressionParser::dict() {
  const u32 line = in_.token.line;
  in_.advance();
  List list;
  while (!in_.token.is_sign("}")) {
    TARN_NODE(key, expression());
    if (!in_.want_sign(":")) return std::nullopt;
    TARN_NODE(value, expression());
    TARN_NODE(pair, in_.make({.kind = NodeKind::pair, .a = key, .b = value}));
    in_.add(list, pair);
    if (!in_.take_sign(",")) break;
  }
  if (!in_.want_sign("}")) return std::nullopt;
  return in_.make({.kind = NodeKind::dict, .line = line, .a = list.first});
}

Parsed ExpressionParser::postfix(NodeIdx of) {
  while (true) {
    if (in_.token.is_sign(".") || in_.token.is_sign("[")) {
      TARN_NODE(made, subscript(of));
      of = made;
    } else if (in_.token.is_sign("(")) {
      TARN_NODE(made, call(of));
      of = made;
    } else {
      return of;
    }
  }
}

Parsed ExpressionParser::filters(NodeIdx of) {
  while (true) {
    if (in_.token.is_sign("|")) {
      in_.advance();
      TARN_NODE(made, filter(of));
      of = made;
    } else if (in_.token.is_name("is")) {
      in_.advance();
      TARN_NODE(made, test(of));
      of = made;
    } else if (in_.token.is_sign("(")) {
      TARN_NODE(made, call(of));
      of = made;
    } else {
      return of;
    }
  }
}

Parsed ExpressionParser::filter(NodeIdx of) {
  const Token token = in_.token;
  if (token.type != TokenType::name) return in_.unexpected("a filter's name");
  in_.advance();
  if (in_.token.is_sign(".")) return in_.unknown(token.text);
  NodeIdx given = kNoNode;
  if (in_.take_sign("(")) {
    TARN_NODE(list, arguments());
    given = list;
  }
  TARN_NODE(called, in_.name(token.text));
  return in_.make({.kind = NodeKind::filter, .line = token.line, .a = of, .b = given, .c = called});
}

Parsed ExpressionParser::test(NodeIdx of) {
  const bool is_negated = in_.take_name("not");
  const Token token = in_.token;
  if (token.type != TokenType::name) return in_.unexpected("a test's name");
  in_.advance();
  NodeIdx given = kNoNode;
  const bool is_word =
      in_.token.is_name("else") || in_.token.is_name("or") || in_.token.is_name("and");
  const bool begins_value =
      in_.token.type == TokenType::name || in_.token.type == TokenType::text ||
      in_.token.type == TokenType::integer || in_.token.type == TokenType::real ||
      in_.token.is_sign("[") || in_.token.is_sign("{");
  if (in_.take_sign("(")) {
    TARN_NODE(list, arguments());
    given = list;
  } else if (begins_value && !is_word) {
    if (in_.token.is_name("is")) return in_.unexpected();
    TARN_NODE(first, primary());
    TARN_NODE(whole, postfix(first));
    TARN_NODE(argument, in_.make({.kind = NodeKind::argument, .a = whole}));
    given = argument;
  }
  TARN_NODE(called, in_.name(token.text));
  TARN_NODE(
      made,
      in_.make({.kind = NodeKind::test, .line = token.line, .a = of, .b = given, .c = called}));
  if (!is_negated) return made;
  return in_.make({.kind = NodeKind::unary, .op = Op::not_, .line = token.line, .a = made});
}

Parsed ExpressionParser::subscript(NodeIdx of) {
  const u32 line = in_.token.line;
  if (in_.take_sign(".")) {
    const Token token = in_.token;
    if (token.type == TokenType::integer) {
      TARN_NODE(idx, number());
      return in_.make({.kind = NodeKind::item, .line = line, .a = of, .b = idx});
    }
    if (token.type != TokenType::name) return in_.unexpected();
    in_.advance();
    return in_.make({.kind = NodeKind::attribute,
                     .line = line,
                     .a = of,
                     .b = in_.begin_of(token.text),
                     .c = static_cast<u32>(token.text.size())});
  }
  in_.advance();
  const auto is_slice_sign = [&] { return in_.token.is_sign(":") || in_.token.is_sign("]"); };
  TARN_NODE(key, is_slice_sign() ? Parsed(kNoNode) : expression());
  if (in_.token.is_sign(":")) {
    NodeIdx parts[] = {key, kNoNode, kNoNode};
    for (u32 i = 1; i < 3 && in_.take_sign(":"); ++i) {
      TARN_NODE(part, is_slice_sign() ? Parsed(kNoNode) : expression());
      parts[i] = part;
    }
    TARN_NODE(
        slice,
        in_.make(
            {.kind = NodeKind::slice, .line = line, .a = parts[0], .b = parts[1], .c = parts[2]}));
    key = slice;
  }
  if (in_.token.is_sign(",")) return in_.unknown("a tuple in brackets");
  if (key == kNoNode) return in_.unexpected();
  if (!in_.want_sign("]")) return std::nullopt;
  return in_.make({.kind = NodeKind::item, .line = line, .a = of, .b = key});
}

Parsed ExpressionParser::call(NodeIdx of) {
  const u32 line = in_.token.line;
  in_.advance();
  TARN_NODE(list, arguments());
  return in_.make({.kind = NodeKind::call, .line = line, .a = of, .b = list});
}

Parsed ExpressionParser::arguments() {
  List list;
  u32 n = 0;
  while (!in_.token.is_sign(")")) {
    if (in_.token.is_sign("*") || in_.token.is_sign("**"))
      return in_.unknown("* before an argument");
    if (++n > kArgumentsMax) return in_.unknown("a call with so many arguments");
    Node node{.kind = NodeKind::argument, .line = in_.token.line};
    if (in_.token.type == TokenType::name && in_.after.is_sign("=")) {
      node.b = in_.begin_of(in_.token.text);
      node.c = static_cast<u32>(in_.token.text.size());
      in_.advance();
      in_.advance();
    }
    TARN_NODE(value, expression());
    node.a = value;
    TARN_NODE(argument, in_.make(node));
    in_.add(list, argument);
    if (!in_.take_sign(",")) break;
  }
  if (!in_.want_sign(")")) return std::nullopt;
  return list.first;
}

}  // namespace tarn::chat
