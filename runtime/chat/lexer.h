// Cuts a template's source into tokens as Jinja2 3.1 does with trim_blocks and lstrip_blocks, and
// without the newline at its end. Private to this folder.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "runtime/chat/limits.h"

namespace tarn::chat {

enum class TokenType : u8 {
  data,         // text outside of tags
  print_begin,  // {{
  print_end,
  block_begin,  // {%
  block_end,
  name,
  text,  // a literal, without quotes and escapes
  integer,
  real,
  sign,  // an operator or bracket
  end,
  bad,  // `text` names the construct, `line` is where that begins
};

struct Token {
  TokenType type = TokenType::end;
  std::string_view text{};
  u32 line = 0;

  bool is(TokenType of, std::string_view what) const { return type == of && text == what; }
  bool is_sign(std::string_view what) const { return is(TokenType::sign, what); }
  bool is_name(std::string_view what) const { return is(TokenType::name, what); }
};

class Lexer {
 public:
  // Makes the ends of lines equal in place, and rewrites literals that have escapes as next() meets
  // them. The source is valid UTF-8.
  explicit Lexer(std::span<char> source);

  std::string_view source() const { return source_; }
  Token next();

 private:
  enum class Where : u8 { outside, print, block };

  Token outside();
  Token raw_text();
  Token inside();
  Token bracket(char sign);
  Token end_of_tag(u64 n_end);
  Token literal();
  Token number();
  Token make(TokenType type, u64 begin, u64 end);
  Token bad(std::string_view what) const { return bad(what, line_); }
  Token bad(std::string_view what, u32 line) const {
    return {.type = TokenType::bad, .text = what, .line = line};
  }
  Token tag_without_end() const;
  u64 unescape(u64 begin, u64 end, bool* is_good);
  void cross(u64 begin, u64 end);  // counts lines

  char* bytes_;
  std::string_view source_;
  u64 at_ = 0;
  u32 line_ = 1;
  u32 tag_line_ = 1;  // where the tag that `where_` is in begins
  // Brackets that are open. Each is a level of the parser, which is at most two tokens behind.
  struct Bracket {
    char sign = 0;
    u32 line = 0;
  };
  std::array<Bracket, kSourceDepthMax + 2> brackets_{};
  u32 n_brackets_ = 0;
  Where where_ = Where::outside;
  bool at_line_begin_ = true;  // the tag before ended with a newline
};

}  // namespace tarn::chat
