// Reads the head of an HTTP/1.1 request: pure functions of bytes, which allocate nothing.
//
// Stricter than RFC 9112 allows a server to be, as http_text.h is: no second Content-Length even if
// equal, no Content-Length beside Transfer-Encoding, no transfer coding but chunked.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "tools/support/http_text.h"

namespace tarn::daemon {

inline constexpr u32 kHeadFieldsMax = 64;

using tools::equals_ignoring_case;
using tools::find_head_end;
using tools::HeadEnd;
using tools::HeadError;
using tools::HeadField;
using tools::kHeadBytesMax;

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

// Reads a whole head. The views point into `bytes`. The first error is returned; what else can be
// read is in `head` all the same.
std::optional<HeadError> read_head(std::string_view bytes, Head& head);

}  // namespace tarn::daemon
