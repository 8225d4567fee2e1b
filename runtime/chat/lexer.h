// Cuts a template's source into tokens as Jinja2 3.1 does with trim_blocks and lstrip_blocks, and
// without the newline at its end. Private to this folder.
#pragma once

#include <span>
#include <string_view>

#include "platform/base/types.h"

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
  bad,  // `text` says what
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
  Token end_of_tag(u64 n_end);
  Token literal();
  Token number();
  Token make(TokenType type, u64 begin, u64 end);
  Token bad(std::string_view what) const;
  u64 unescape(u64 begin, u64 end, bool* is_good);
  void cross(u64 begin, u64 end);  // counts lines

  char* bytes_;
  std::string_view source_;
  u64 at_ = 0;
  u32 line_ = 1;
  u32 nesting_ = 0;
  Where where_ = Where::outside;
  bool at_line_begin_ = true;  // the tag before ended with a newline
};

}  // namespace tarn::chat
