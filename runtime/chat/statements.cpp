// The parser's part that reads text and tags.
#include <algorithm>
#include <utility>

#include "runtime/chat/parser_support.h"

namespace tarn::chat {

bool Parser::Open::is_ended_by(std::string_view tag) const {
  if (tag == "elif") return may_elif;
  if (tag == "else") return may_else;
  return !name.empty() && tag.starts_with("end") && tag.substr(3) == name;
}

// Text and tags up to one that ends `open`; its name is then the next token. Up to the source's end
// if that has no name.
Parsed Parser::statements(const Open& open) {
  const Deeper deeper(in_.depth);
  if (deeper.is_too_deep()) return in_.too_deep();
  open_[n_open_++] = open;
  List list;
  while (in_.token.type != TokenType::end) {
    const Token token = in_.token;
    if (token.type == TokenType::data) {
      in_.advance();
      TARN_NODE(made, in_.make({.kind = NodeKind::data,
                                .line = token.line,
                                .a = in_.begin_of(token.text),
                                .b = static_cast<u32>(token.text.size())}));
      in_.add(list, made);
      continue;
    }
    if (token.type == TokenType::print_begin) {
      in_.advance();
      TARN_NODE(value, expressions_.tuple(true, false, ""));
      if (in_.token.type != TokenType::print_end) return in_.unexpected("}}");
      in_.advance();
      TARN_NODE(made, in_.make({.kind = NodeKind::print, .line = token.line, .a = value}));
      in_.add(list, made);
      continue;
    }
    if (token.type != TokenType::block_begin) return in_.unexpected();
    in_.advance();
    if (in_.token.type != TokenType::name) return in_.unexpected("a tag's name");
    if (open.is_ended_by(in_.token.text)) break;
    TARN_NODE(made, statement());
    in_.add(list, made);
  }
  --n_open_;
  if (in_.token.type == TokenType::end && !open.name.empty()) return unended(open);
  return list.first;
}

std::nullopt_t Parser::unended(const Open& open) {
  const char* const article = open.name == "if" ? "an " : "a ";
  return in_.broken({article, open.name, " without its end", open.name}, open.line);
}

// A tag that ends nothing here; if it ends a tag further out, the innermost one lacks its end.
std::nullopt_t Parser::stray(const Token& tag) {
  const Open& innermost = open_[n_open_ - 1];
  for (u32 i = 0; i + 1 < n_open_; ++i) {
    if (open_[i].is_ended_by(tag.text)) return unended(innermost);
  }
  if (tag.text.starts_with("end")) {
    return in_.broken({"an ", tag.text, " without its ", tag.text.substr(3)}, tag.line);
  }
  const bool is_behind_else =
      innermost.name == "if" || (innermost.name == "for" && tag.text == "else");
  return in_.broken({"an ", tag.text, is_behind_else ? " behind an else" : " without its if"},
                    tag.line);
}

Parsed Parser::statement() {
  const Token token = in_.token;
  in_.advance();
  const std::string_view name = token.text;
  if (name == "if") return branch(token.line);
  if (name == "for") return loop(token.line);
  if (name == "set") return set(token.line);
  if (name == "macro") return macro(token.line);
  if (name == "filter") return filter_block(token.line);
  if (name == "with") return with(token.line);
  if (name == "generation") {  // marks what an assistant wrote, for training
    if (!end_tag()) return std::nullopt;
    TARN_NODE(inner, captured({.name = name, .line = token.line}));
    return in_.make({.kind = NodeKind::with, .line = token.line, .b = inner});
  }
  if (name == "print") {
    TARN_NODE(value, expressions_.tuple(true, false, ""));
    TARN_NODE(made, in_.make({.kind = NodeKind::print, .line = token.line, .a = value}));
    if (!end_tag()) return std::nullopt;
    return made;
  }
  if (name == "break" || name == "continue") {
    if (n_loops_ == 0) return in_.broken({"a ", name, " outside of a for"}, token.line);
    TARN_NODE(made, in_.make({.kind = name == "break" ? NodeKind::leave : NodeKind::next_item,
                              .line = token.line}));
    if (!end_tag()) return std::nullopt;
    return made;
  }
  const bool is_end =
      name == "else" || name == "elif" || (name.starts_with("end") && name.size() > 3);
  if (is_end) return stray(token);
  return in_.fail_at(
      "the chat template has a tag that Tarn does not know: pass another with "
      "--chat-template (chat_template)",
      name, Status::unsupported);
}

bool Parser::end_tag() {
  if (in_.token.type != TokenType::block_end) {
    in_.unexpected("%}");
    return false;
  }
  in_.advance();
  return true;
}

Parsed Parser::body(const Open& open) {
  TARN_NODE(inner, statements(open));
  in_.advance();
  if (!end_tag()) return std::nullopt;
  return inner;
}

// A body whose text is a value: a break in it is not of a loop around it.
Parsed Parser::captured(const Open& open) {
  const u32 n_outer = std::exchange(n_loops_, 0);
  const Parsed inner = body(open);
  n_loops_ = n_outer;
  return inner;
}

Parsed Parser::branch(u32 line) {
  TARN_NODE(first_condition, expressions_.tuple(false, false, ""));
  TARN_NODE(first, in_.make({.kind = NodeKind::branch, .line = line, .a = first_condition}));
  NodeIdx last = first;
  while (true) {
    if (!end_tag()) return std::nullopt;
    TARN_NODE(inner, statements({.name = "if", .line = line, .may_elif = true, .may_else = true}));
    in_.memory.nodes[last].b = inner;
    const Token token = in_.token;
    in_.advance();
    if (token.text == "endif") break;
    if (token.text == "else") {
      if (!end_tag()) return std::nullopt;
      TARN_NODE(otherwise, statements({.name = "if", .line = line}));
      in_.memory.nodes[last].c = otherwise;
      in_.advance();
      break;
    }
    TARN_NODE(condition, expressions_.tuple(false, false, ""));
    TARN_NODE(made, in_.make({.kind = NodeKind::branch, .line = token.line, .a = condition}));
    in_.memory.nodes[last].c = made;
    last = made;
  }
  if (!end_tag()) return std::nullopt;
  return first;
}

// Parses the target of an assignment: a name, or several in a tuple.
Parsed Parser::target() {
  const u32 line = in_.token.line;
  List list;
  bool is_tuple = false;
  const bool in_parentheses = in_.take_sign("(");
  while (in_.token.type == TokenType::name && !in_.token.is_name("in")) {
    TARN_NODE(idx, in_.name(in_.token.text));
    TARN_NODE(made, in_.make({.kind = NodeKind::name, .a = idx}));
    in_.advance();
    in_.add(list, made);
    if (!in_.take_sign(",")) break;
    is_tuple = true;
  }
  if (in_parentheses && !in_.want_sign(")")) return std::nullopt;
  if (list.first == kNoNode) return in_.unexpected("a variable's name");
  if (!is_tuple) return list.first;
  return in_.make({.kind = NodeKind::tuple, .line = line, .a = list.first});
}

Parsed Parser::loop(u32 line) {
  TARN_NODE(into, target());
  if (!in_.take_name("in")) return in_.unexpected("in");
  TARN_NODE(over, expressions_.tuple(false, false, "recursive"));
  NodeIdx condition = kNoNode;
  if (in_.take_name("if")) {
    TARN_NODE(only, expressions_.expression());
    condition = only;
  }
  if (in_.token.is_name("recursive")) return in_.unknown("a recursive loop");
  if (!end_tag()) return std::nullopt;
  ++n_loops_;
  TARN_NODE(inner, statements({.name = "for", .line = line, .may_else = true}));
  --n_loops_;
  NodeIdx otherwise = kNoNode;
  const bool has_else = in_.token.text == "else";
  in_.advance();
  if (has_else) {
    if (!end_tag()) return std::nullopt;
    TARN_NODE(other, statements({.name = "for", .line = line}));
    otherwise = other;
    in_.advance();
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(parts, in_.make({.kind = NodeKind::loop_parts,
                             .line = line,
                             .a = condition,
                             .b = inner,
                             .c = otherwise}));
  return in_.make({.kind = NodeKind::loop, .line = line, .a = into, .b = over, .c = parts});
}

Parsed Parser::set(u32 line) {
  NodeIdx into = kNoNode;
  if (in_.token.type == TokenType::name && in_.after.is_sign(".")) {
    TARN_NODE(space, in_.name(in_.token.text));
    in_.advance();
    in_.advance();
    if (in_.token.type != TokenType::name) return in_.unexpected();
    TARN_NODE(made, in_.make({.kind = NodeKind::space_target,
                              .line = line,
                              .a = space,
                              .b = in_.begin_of(in_.token.text),
                              .c = static_cast<u32>(in_.token.text.size())}));
    in_.advance();
    into = made;
  } else {
    TARN_NODE(made, target());
    into = made;
  }
  if (in_.take_sign("=")) {
    TARN_NODE(value, expressions_.tuple(true, false, ""));
    TARN_NODE(made, in_.make({.kind = NodeKind::set, .line = line, .a = into, .b = value}));
    if (!end_tag()) return std::nullopt;
    return made;
  }
  NodeIdx through = kNoNode;
  while (in_.take_sign("|")) {
    TARN_NODE(made, expressions_.filter(through));
    through = made;
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(inner, captured({.name = "set", .line = line}));
  return in_.make({.kind = NodeKind::set_block, .line = line, .a = into, .b = through, .c = inner});
}

Parsed Parser::macro(u32 line) {
  if (n_macros_ > 0 || n_loops_ > 0) return in_.unknown("a macro inside of a loop or a macro");
  if (in_.token.type != TokenType::name) return in_.unexpected("the macro's name");
  TARN_NODE(called, in_.name(in_.token.text));
  in_.advance();
  if (!in_.want_sign("(")) return std::nullopt;
  List list;
  while (in_.token.type == TokenType::name) {
    Node node{.kind = NodeKind::parameter, .line = in_.token.line};
    TARN_NODE(idx, in_.name(in_.token.text));
    node.a = idx;
    in_.advance();
    if (in_.take_sign("=")) {
      TARN_NODE(value, expressions_.expression());
      node.b = value;
    }
    TARN_NODE(made, in_.make(node));
    in_.add(list, made);
    if (!in_.take_sign(",")) break;
  }
  if (!in_.want_sign(")") || !end_tag()) return std::nullopt;
  ++n_macros_;
  TARN_NODE(inner, body({.name = "macro", .line = line}));
  --n_macros_;
  return in_.make(
      {.kind = NodeKind::macro, .line = line, .a = called, .b = list.first, .c = inner});
}

Parsed Parser::filter_block(u32 line) {
  TARN_NODE(through, expressions_.filter(kNoNode));
  while (in_.take_sign("|")) {
    TARN_NODE(made, expressions_.filter(through));
    through = made;
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(inner, captured({.name = "filter", .line = line}));
  return in_.make({.kind = NodeKind::filter_block, .line = line, .a = through, .b = inner});
}

Parsed Parser::with(u32 line) {
  List list;
  while (in_.token.type == TokenType::name) {
    TARN_NODE(into, target());
    if (!in_.want_sign("=")) return std::nullopt;
    TARN_NODE(value, expressions_.expression());
    TARN_NODE(made, in_.make({.kind = NodeKind::set, .line = line, .a = into, .b = value}));
    in_.add(list, made);
    if (!in_.take_sign(",")) break;
  }
  if (!end_tag()) return std::nullopt;
  TARN_NODE(inner, body({.name = "with", .line = line}));
  return in_.make({.kind = NodeKind::with, .line = line, .a = list.first, .b = inner});
}

}  // namespace tarn::chat
