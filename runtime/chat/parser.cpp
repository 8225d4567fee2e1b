#include "runtime/chat/parser.h"

#include "runtime/chat/parser_support.h"

namespace tarn::chat {

ParserState::ParserState(const ParserMemory& lent) : memory(lent), lexer(lent.source) {
  memory.nodes[kNoNode] = Node{};
  advance();
  advance();
}

void ParserState::advance() {
  token = after;
  if (after.type != TokenType::bad) after = lexer.next();
}

bool ParserState::take_sign(std::string_view sign) {
  if (!token.is_sign(sign)) return false;
  advance();
  return true;
}

bool ParserState::take_name(std::string_view name) {
  if (!token.is_name(name)) return false;
  advance();
  return true;
}

bool ParserState::want_sign(std::string_view sign) {
  if (take_sign(sign)) return true;
  unexpected(sign);
  return false;
}

std::nullopt_t ParserState::fail_at(const char* hint, const Detail& detail, Status status) {
  if (error.status == Status::internal) {  // the first counts
    error = {.status = status, .hint = hint, .detail = detail, .figures = {{{"line", token.line}}}};
  }
  return std::nullopt;
}

std::nullopt_t ParserState::broken(const Detail& construct, u32 line) {
  token.line = line;
  return fail_at(
      "the chat template cannot be read: pass another with --chat-template (chat_template)",
      construct, Status::invalid_model);
}

std::nullopt_t ParserState::unexpected(std::string_view wanted) {
  if (token.type == TokenType::bad) return broken(token.text, token.line);
  const bool is_end = token.type == TokenType::end;
  return fail_at(
      "the chat template has something at a place where it means nothing: pass another "
      "with --chat-template (chat_template)",
      Detail({is_end ? "its end" : token.text, wanted.empty() ? "" : ", where ", wanted,
              wanted.empty() ? "" : " should be"}),
      Status::invalid_model);
}

std::nullopt_t ParserState::unknown(std::string_view what) {
  return fail_at(
      "the chat template uses what Tarn does not know: pass another with "
      "--chat-template (chat_template)",
      what, Status::unsupported);
}

Parsed ParserState::make(Node node) {
  if (n_nodes == memory.nodes.size()) {
    return fail_at(
        "the chat template has more parts than a template of its size: pass another "
        "with --chat-template (chat_template)",
        {}, Status::unsupported);
  }
  if (node.line == 0) node.line = token.line;
  memory.nodes[n_nodes] = node;
  return n_nodes++;
}

Parsed ParserState::name(std::string_view text) {
  for (u32 i = 0; i < n_names; ++i) {
    const NameText& known = memory.names[i];
    if (std::string_view(memory.source.data() + known.begin, known.n_bytes) == text) return i;
  }
  if (n_names == memory.names.size()) {
    return fail_at(
        "the chat template has too many variables: pass another with --chat-template "
        "(chat_template)",
        text, Status::unsupported);
  }
  memory.names[n_names] = {begin_of(text), static_cast<u32>(text.size())};
  return n_names++;
}

std::nullopt_t ParserState::too_deep() {
  return fail_at(
      "the chat template is nested too deeply: pass another with --chat-template "
      "(chat_template)",
      {}, Status::unsupported);
}

void ParserState::add(List& list, NodeIdx idx) {
  if (list.first == kNoNode) {
    list.first = idx;
  } else {
    memory.nodes[list.last].next = idx;
  }
  list.last = idx;
}

Result<Program> Parser::parse() {
  const Parsed body = statements({});
  if (!body) return fail(in_.error);
  return Program{.source = in_.lexer.source(),
                 .nodes = in_.memory.nodes.first(in_.n_nodes),
                 .names = in_.memory.names.first(in_.n_names),
                 .body = *body};
}

}  // namespace tarn::chat
