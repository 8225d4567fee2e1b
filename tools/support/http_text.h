// The heads of HTTP/1.1 requests and responses: where one ends, and its fields.
// Pure functions of bytes, which allocate nothing. Stricter than RFC 9112 allows, where leniency
// has let two programs read one message differently: no bare LF, no folded field, no space before a
// colon.
#pragma once

#include <optional>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::tools {

inline constexpr u64 kHeadBytesMax = 16 * 1024;

struct HeadField {
  std::string_view name, value;
};

// Why a message is refused before its body is read; a request's answer has the status.
struct HeadError {
  int status = 400;
  const char* sentence = "";
};

struct HeadEnd {
  u64 n_bytes = 0;  // of the head with its empty line; 0: it is not whole yet
  std::optional<HeadError> error;
};
// Finds the end of the head that `bytes` begin with. A byte that no head has is an error at once.
HeadEnd find_head_end(std::string_view bytes);

// Takes the text before the next separator, or all of it.
std::string_view next_part(std::string_view& rest, std::string_view separator);
// Takes the first line of a whole head; an empty line before it is ignored.
std::string_view first_line(std::string_view& head);
// Reads a line of a head; nothing where it is no field. The views point into it.
std::optional<HeadField> read_field(std::string_view line);

bool is_token(std::string_view text);
std::string_view without_blanks(std::string_view text);
// ASCII alone: header names and host names.
bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace tarn::tools
