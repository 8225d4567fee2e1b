// From tokens to nodes, with Jinja2's grammar and precedences. Private to this folder.
//
//   ParserState       the next two tokens, and where nodes are written
//   ExpressionParser  what stands between {{ and }}
//   Parser            text and tags; it holds the other two
#pragma once

#include <array>
#include <optional>
#include <span>
#include <string_view>

#include "platform/base/result.h"
#include "runtime/chat/lexer.h"
#include "runtime/chat/limits.h"
#include "runtime/chat/syntax.h"

namespace tarn::chat {

// The memory that a parser writes to.
struct ParserMemory {
  std::span<char> source{};  // in place
  std::span<Node> nodes{};   // the first stands for nothing
  std::span<NameText> names{};
};

using Parsed = std::optional<NodeIdx>;  // empty: failed, and the parser has the error

struct ParserState {
  explicit ParserState(const ParserMemory& lent);
  ParserState(const ParserState&) = delete;
  ParserState& operator=(const ParserState&) = delete;

  void advance();
  bool take_sign(std::string_view sign);
  bool take_name(std::string_view name);
  bool want_sign(std::string_view sign);
  Parsed make(Node node);
  Parsed name(std::string_view text);  // the number of a variable's name
  u32 begin_of(std::string_view text) const {
    return static_cast<u32>(text.data() - memory.source.data());
  }
  std::nullopt_t fail_at(const char* hint, const Detail& detail, Status status);
  // A construct that is not whole, and the line where it begins.
  std::nullopt_t broken(const Detail& construct, u32 line);
  // The next token stands where none of its kind can; `wanted` can.
  std::nullopt_t unexpected(std::string_view wanted = "");
  std::nullopt_t unknown(std::string_view what);
  std::nullopt_t too_deep();

  // Nodes in a row.
  struct List {
    NodeIdx first = kNoNode;
    NodeIdx last = kNoNode;
  };
  void add(List& list, NodeIdx idx);

  ParserMemory memory;
  Lexer lexer;
  Token token{};  // the next
  Token after{};  // and the one behind it
  u32 n_nodes = 1;
  u32 n_names = 0;
  u32 depth = 0;
  Error error{};
};

class ExpressionParser {
 public:
  explicit ExpressionParser(ParserState& in) : in_(in) {}

  // Expressions with commas between them are a tuple; one alone is itself. `end_name`: a word that
  // ends it.
  Parsed tuple(bool conditional, bool in_parentheses, std::string_view end_name);
  Parsed expression();
  Parsed filter(NodeIdx of);  // behind |

 private:
  Parsed conditional();
  Parsed logical(Op op);
  Parsed not_expression();
  Parsed compare();
  Parsed binary(u32 level);
  Parsed unary(bool with_filter);
  Parsed primary();
  Parsed postfix(NodeIdx of);
  Parsed filters(NodeIdx of);  // and tests and calls
  Parsed test(NodeIdx of);
  Parsed subscript(NodeIdx of);
  Parsed call(NodeIdx of);
  Parsed arguments();
  Parsed dict();
  Parsed list_until(std::string_view end);
  Parsed text();
  Parsed number();

  using List = ParserState::List;
  ParserState& in_;
};

class Parser {
 public:
  explicit Parser(const ParserMemory& memory) : in_(memory), expressions_(in_) {}
  Result<Program> parse();

 private:
  // A tag whose body is read. "end" and its name end that; so do others for a while.
  struct Open {
    std::string_view name;
    u32 line = 0;
    bool may_elif = false, may_else = false;
    bool is_ended_by(std::string_view tag) const;
  };
  Parsed statements(const Open& open);
  Parsed statement();
  std::nullopt_t unended(const Open& open);
  std::nullopt_t stray(const Token& tag);
  Parsed branch(u32 line);
  Parsed loop(u32 line);
  Parsed set(u32 line);
  Parsed macro(u32 line);
  Parsed with(u32 line);
  Parsed filter_block(u32 line);
  Parsed body(const Open& open);  // and its end tag
  Parsed captured(const Open& open);
  Parsed target();
  bool end_tag();

  using List = ParserState::List;
  ParserState in_;
  ExpressionParser expressions_;
  std::array<Open, kSourceDepthMax> open_{};  // each is a level
  u32 n_open_ = 0;
  u32 n_loops_ = 0;  // that are open
  u32 n_macros_ = 0;
};

}  // namespace tarn::chat
