#include "runtime/chat/parser.h"

#include "runtime/chat/parser_support.h"

namespace tarn::chat {

ParserBase::ParserBase(const ParserMemory& memory) : memory_(memory), lexer_(memory.source) {
  memory_.nodes[kNoNode] = Node{};
  advance();
  advance();
}

void ParserBase::advance() {
  token_ = after_;
  if (after_.type != TokenType::bad) after_ = lexer_.next();
}

bool ParserBase::take_sign(std::string_view sign) {
  if (!token_.is_sign(sign)) return false;
  advance();
  return true;
}

bool ParserBase::take_name(std::string_view name) {
  if (!token_.is_name(name)) return false;
  advance();
  return true;
}

bool ParserBase::want_sign(std::string_view sign) {
  if (take_sign(sign)) return true;
  unexpected(sign);
  return false;
}

std::nullopt_t ParserBase::fail_at(const char* hint, const Detail& detail, Status status) {
  if (error_.status == Status::internal) {  // the first counts
    error_ = {
        .status = status, .hint = hint, .detail = detail, .figures = {{{"line", token_.line}}}};
  }
  return std::nullopt;
}

std::nullopt_t ParserBase::broken(const Detail& construct, u32 line) {
  token_.line = line;
  return fail_at(
      "the chat template cannot be read: pass another with --chat-template (chat_template)",
      construct, Status::invalid_model);
}

std::nullopt_t ParserBase::unexpected(std::string_view wanted) {
  if (token_.type == TokenType::bad) return broken(token_.text, token_.line);
  const bool is_end = token_.type == TokenType::end;
  return fail_at(
      "the chat template has something at a place where it means nothing: pass another "
      "with --chat-template (chat_template)",
      Detail({is_end ? "its end" : token_.text, wanted.empty() ? "" : ", where ", wanted,
              wanted.empty() ? "" : " should be"}),
      Status::invalid_model);
}

std::nullopt_t ParserBase::unknown(std::string_view what) {
  return fail_at(
      "the chat template uses what Tarn does not know: pass another with "
      "--chat-template (chat_template)",
      what, Status::unsupported);
}

Parsed ParserBase::make(Node node) {
  if (n_nodes_ == memory_.nodes.size()) {
    return fail_at(
        "the chat template has more parts than a template of its size: pass another "
        "with --chat-template (chat_template)",
        {}, Status::unsupported);
  }
  if (node.line == 0) node.line = token_.line;
  memory_.nodes[n_nodes_] = node;
  return n_nodes_++;
}

Parsed ParserBase::name(std::string_view text) {
  for (u32 i = 0; i < n_names_; ++i) {
    const NameText& known = memory_.names[i];
    if (std::string_view(memory_.source.data() + known.begin, known.n_bytes) == text) return i;
  }
  if (n_names_ == memory_.names.size()) {
    return fail_at(
        "the chat template has too many variables: pass another with --chat-template "
        "(chat_template)",
        text, Status::unsupported);
  }
  memory_.names[n_names_] = {begin_of(text), static_cast<u32>(text.size())};
  return n_names_++;
}

std::nullopt_t ParserBase::too_deep() {
  return fail_at(
      "the chat template is nested too deeply: pass another with --chat-template "
      "(chat_template)",
      {}, Status::unsupported);
}

void ParserBase::add(List& list, NodeIdx idx) {
  if (list.first == kNoNode) {
    list.first = idx;
  } else {
    memory_.nodes[list.last].next = idx;
  }
  list.last = idx;
}

Result<Program> Parser::parse() {
  const Parsed body = statements({});
  if (!body) return fail(error_);
  return Program{.source = lexer_.source(),
                 .nodes = memory_.nodes.first(n_nodes_),
                 .names = memory_.names.first(n_names_),
                 .body = *body};
}

}  // namespace tarn::chat
