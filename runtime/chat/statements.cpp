// The parser's part that reads text and tags.
#include <algorithm>
#include <utility>

#include "runtime/chat/parser_support.h"

namespace tarn::chat {

// Text and tags up to an end, a tag with one of these names; its name is then the next token.
Parsed Parser::statements(std::initializer_list<std::string_view> ends) {
  const Deeper deeper(depth_);
  if (deeper.is_too_deep()) return too_deep();
  List list;
  while (token_.type != TokenType::end) {
    const Token token = token_;
    if (token.type == TokenType::data) {
      advance();
      TARN_NODE(made, make({.kind = NodeKind::data,
                            .line = token.line,
                            .a = begin_of(token.text),
                            .b = static_cast<u32>(token.text.size())}));
      add(list, made);
      continue;
    }
    if (token.type == TokenType::print_begin) {
      advance();
      TARN_NODE(value, tuple(true, false, ""));
      if (token_.type != TokenType::print_end) return unexpected();
      advance();
      TARN_NODE(made, make({.kind = NodeKind::print, .line = token.line, .a = value}));
      add(list, made);
      continue;
    }
    if (token.type != TokenType::block_begin) return unexpected();
    advance();
    if (token_.type != TokenType::name) return unexpected();
    if (std::find(ends.begin(), ends.end(), token_.text) != ends.end()) return list.first;
    TARN_NODE(made, statement());
    add(list, made);
  }
  if (ends.size() > 0) return unexpected();
  return list.first;
}

Parsed Parser::statement() {
  const Token token = token_;
  advance();
  const std::string_view name = token.text;
  if (name == "if") return branch(token.line);
  if (name == "for") return loop(token.line);
  if (name == "set") return set(token.line);
  if (name == "macro") return macro(token.line);
  if (name == "filter") return filter_block(token.line);
  if (name == "with") return with(token.line);
  if (name == "generation") {  // marks what an assistant wrote, for training
    if (!end_tag()) return std::nullopt;
    TARN_NODE(inner, captured("endgeneration"));
    return make({.kind = NodeKind::with, .line = token.line, .b = inner});
  }
  if (name == "print") {
    TARN_NODE(value, tuple(true, false, ""));
    TARN_NODE(made, make({.kind = NodeKind::print, .line = token.line, .a = value}));
    if (!end_tag()) return std::nullopt;
    return made;
  }
  if (name == "break" || name == "continue") {
    if (n_loops_ == 0) return unexpected();
    TARN_NODE(made, make({.kind = name == "break" ? NodeKind::leave : NodeKind::next_item,
                          .line = token.line}));
    if (!end_tag()) return std::nullopt;
    return made;
  }
  return fail_at(
      "the chat template has a tag that Tarn does not know: pass another with "
      "--chat-template (chat_template)",
      name, Status::unsupported);
}

bool Parser::end_tag() {
  if (token_.type != TokenType::block_end) {
    unexpected();
    return false;
  }
  advance();
  return true;
}

Parsed Parser::body(std::string_view end) {
  TARN_NODE(inner, statements({end}));
  advance();
  if (!end_tag()) return std::nullopt;
  return inner;
}

// A body whose text is a value: a break in it is not of a loop around it.
Parsed Parser::captured(std::string_view end) {
  const u32 n_outer = std::exchange(n_loops_, 0);
  const Parsed inner = body(end);
  n_loops_ = n_outer;
  return inner;
}

Parsed Parser::branch(u32 line) {
  TARN_NODE(first_condition, tuple(false, false, ""));
  TARN_NODE(first, make({.kind = NodeKind::branch, .line = line, .a = first_condition}));
  NodeIdx last = first;
  while (true) {
    if (!end_tag()) return std::nullopt;
    TARN_NODE(inner, statements({"elif", "else", "endif"}));
    memory_.nodes[last].b = inner;
    const Token token = token_;
    advance();
    if (token.text == "endif") break;
    if (token.text == "else") {
      if (!end_tag()) return std::nullopt;
      TARN_NODE(otherwise, statements({"endif"}));
      memory_.nodes[last].c = otherwise;
      advance();
      break;
    }
    TARN_NODE(condition, tuple(false, false, ""));
    TARN_NODE(made, make({.kind = NodeKind::branch, .line = token.line, .a = condition}));
    memory_.nodes[last].c = made;
    last = made;
  }
  if (!end_tag()) return std::nullopt;
  return first;
}

// What is assigned to: a name, or several in a tuple.
Parsed Parser::target() {
  const u32 line = token_.line;
  List list;
  bool is_tuple = false;
  const bool in_parentheses = take_sign("(");
  while (token_.type == TokenType::name && !token_.is_name("in")) {
    TARN_NODE(idx, name(token_.text));
    TARN_NODE(made, make({.kind = NodeKind::name, .a = idx}));
    advance();
    add(list, made);
    if (!take_sign(",")) break;
    is_tuple = true;
  }
  if (in_parentheses && !want_sign(")")) return std::nullopt;
  if (list.first == kNoNode) return unexpected();
  if (!is_tuple) return list.first;
  return make({.kind = NodeKind::tuple, .line = line, .a = list.first});
}

Parsed Parser::loop(u32 line) {
  TARN_NODE(into, target());
  if (!take_name("in")) return unexpected();
  TARN_NODE(over, tuple(false, false, "recursive"));
  NodeIdx condition = kNoNode;
  if (take_name("if")) {
    TARN_NODE(only, expression());
    condition = only;
  }
  if (token_.is_name("recursive")) return unknown("a recursive loop");
  if (!end_tag()) return std::nullopt;
  ++n_loops_;
  TARN_NODE(inner, statements({"endfor", "else"}));
  --n_loops_;
  NodeIdx otherwise = kNoNode;
  const bool has_else = token_.text == "else";
  advance();
  if (has_else) {
    if (!end_tag()) return std::nullopt;
    TARN_NODE(other, statements({"endfor"}));
    otherwise = other;
    advance();
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(parts, make({.kind = NodeKind::loop_parts,
                         .line = line,
                         .a = condition,
                         .b = inner,
                         .c = otherwise}));
  return make({.kind = NodeKind::loop, .line = line, .a = into, .b = over, .c = parts});
}

Parsed Parser::set(u32 line) {
  NodeIdx into = kNoNode;
  if (token_.type == TokenType::name && after_.is_sign(".")) {
    TARN_NODE(space, name(token_.text));
    advance();
    advance();
    if (token_.type != TokenType::name) return unexpected();
    TARN_NODE(made, make({.kind = NodeKind::space_target,
                          .line = line,
                          .a = space,
                          .b = begin_of(token_.text),
                          .c = static_cast<u32>(token_.text.size())}));
    advance();
    into = made;
  } else {
    TARN_NODE(made, target());
    into = made;
  }
  if (take_sign("=")) {
    TARN_NODE(value, tuple(true, false, ""));
    TARN_NODE(made, make({.kind = NodeKind::set, .line = line, .a = into, .b = value}));
    if (!end_tag()) return std::nullopt;
    return made;
  }
  NodeIdx through = kNoNode;
  while (take_sign("|")) {
    TARN_NODE(made, filter(through));
    through = made;
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(inner, captured("endset"));
  return make({.kind = NodeKind::set_block, .line = line, .a = into, .b = through, .c = inner});
}

Parsed Parser::macro(u32 line) {
  if (n_macros_ > 0 || n_loops_ > 0) return unknown("a macro inside of a loop or a macro");
  if (token_.type != TokenType::name) return unexpected();
  TARN_NODE(called, name(token_.text));
  advance();
  if (!want_sign("(")) return std::nullopt;
  List list;
  while (token_.type == TokenType::name) {
    Node node{.kind = NodeKind::parameter, .line = token_.line};
    TARN_NODE(idx, name(token_.text));
    node.a = idx;
    advance();
    if (take_sign("=")) {
      TARN_NODE(value, expression());
      node.b = value;
    }
    TARN_NODE(made, make(node));
    add(list, made);
    if (!take_sign(",")) break;
  }
  if (!want_sign(")") || !end_tag()) return std::nullopt;
  ++n_macros_;
  TARN_NODE(inner, body("endmacro"));
  --n_macros_;
  return make({.kind = NodeKind::macro, .line = line, .a = called, .b = list.first, .c = inner});
}

Parsed Parser::filter_block(u32 line) {
  TARN_NODE(through, filter(kNoNode));
  while (take_sign("|")) {
    TARN_NODE(made, filter(through));
    through = made;
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(inner, captured("endfilter"));
  return make({.kind = NodeKind::filter_block, .line = line, .a = through, .b = inner});
}

Parsed Parser::with(u32 line) {
  List list;
  while (token_.type == TokenType::name) {
    TARN_NODE(into, target());
    if (!want_sign("=")) return std::nullopt;
    TARN_NODE(value, expression());
    TARN_NODE(made, make({.kind = NodeKind::set, .line = line, .a = into, .b = value}));
    add(list, made);
    if (!take_sign(",")) break;
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(inner, body("endwith"));
  return make({.kind = NodeKind::with, .line = line, .a = list.first, .b = inner});
}

}  // namespace tarn::chat
