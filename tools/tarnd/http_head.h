// Reads the head of an HTTP/1.1 request: pure functions of bytes, which allocate nothing.
//
// Stricter than RFC 9112 allows a server to be, where leniency has let two programs read one
// message differently: no bare LF, no folded field, no space before a colon, no second
// Content-Length even if equal, no Content-Length beside Transfer-Encoding, no transfer coding but
// chunked.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "platform/base/types.h"

namespace tarn::daemon {

inline constexpr u64 kHeadBytesMax = 16 * 1024;
inline constexpr u32 kHeadFieldsMax = 64;

struct HeadField {
  std::string_view name, value;
};

struct Head {
  std::string_view method, path, query;  // the path may hold escapes; the query is without '?'
  std::array<HeadField, kHeadFieldsMax> fields;
  u32 n_fields = 0;
  u32 minor_version = 1;
  std::optional<u64> content_bytes;  // Content-Length
  bool is_chunked = false;
  bool keeps_alive = true;
  bool expects_continue = false;

  // The first field of this name, in lower case; "" if there is none.
  std::string_view field(std::string_view name) const;
  u32 count(std::string_view name) const;
  bool has_body() const { return is_chunked || content_bytes.value_or(0) > 0; }
};

// Why a request is refused before its body is read.
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

// Reads a whole head. The views point into `bytes`. The first error is returned; what else can be
// read is in `head` all the same.
std::optional<HeadError> read_head(std::string_view bytes, Head& head);

// ASCII alone: header names and host names.
bool equals_ignoring_case(std::string_view a, std::string_view b);

}  // namespace tarn::daemon
