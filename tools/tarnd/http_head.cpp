#include "tools/tarnd/http_head.h"

#include <algorithm>

namespace tarn::daemon {
namespace {

using Refused = std::optional<HeadError>;

using tools::next_part;
using tools::without_blanks;

Refused read_target(std::string_view target, Head& head) {
  if (target.starts_with("http://")) {  // absolute form, which a server must take
    target.remove_prefix(7);
    const size_t slash = target.find('/');
    if (slash == 0 || slash == std::string_view::npos) return HeadError{400, "bad request target"};
    target.remove_prefix(slash);
  }
  const bool is_visible =
      std::ranges::all_of(target, [](char c) { return c > ' ' && c < '\x7f' && c != '#'; });
  if (!target.starts_with('/') || !is_visible) return HeadError{400, "bad request target"};
  head.path = next_part(target, "?");
  head.query = target;
  return std::nullopt;
}

Refused read_request_line(std::string_view line, Head& head) {
  head.method = next_part(line, " ");
  const std::string_view target = next_part(line, " ");
  if (!tools::is_token(head.method)) return HeadError{400, "bad request line"};
  if (line != "HTTP/1.1" && line != "HTTP/1.0") {
    const bool is_other = line.size() == 8 && line.starts_with("HTTP/") && line[6] == '.';
    return HeadError{is_other ? 505 : 400, "only HTTP/1.1 and HTTP/1.0 are spoken here"};
  }
  head.minor_version = static_cast<u32>(line.back() - '0');
  head.keeps_alive = head.minor_version == 1;
  return read_target(target, head);
}

Refused read_content_length(std::string_view value, Head& head) {
  constexpr size_t kDigitsMax = 18;
  if (head.content_bytes) return HeadError{400, "Content-Length is there twice"};
  const bool is_number =
      !value.empty() && std::ranges::all_of(value, [](char c) { return c >= '0' && c <= '9'; });
  if (!is_number) return HeadError{400, "bad Content-Length"};
  if (value.size() > kDigitsMax) return HeadError{413, "the body is too long"};
  u64 bytes = 0;
  for (const char c : value) bytes = bytes * 10 + static_cast<u64>(c - '0');
  head.content_bytes = bytes;
  return std::nullopt;
}

Refused read_transfer_encoding(std::string_view value, Head& head) {
  if (head.is_chunked || head.minor_version == 0) return HeadError{400, "bad Transfer-Encoding"};
  if (!equals_ignoring_case(value, "chunked")) {
    return HeadError{501, "the only transfer coding known here is chunked"};
  }
  head.is_chunked = true;
  return std::nullopt;
}

Refused read_content_encoding(std::string_view value) {
  while (!value.empty()) {
    const std::string_view coding = without_blanks(next_part(value, ","));
    if (coding.empty() || equals_ignoring_case(coding, "identity")) continue;
    return HeadError{415, "a body is read as it is: send it without Content-Encoding"};
  }
  return std::nullopt;
}

void read_connection(std::string_view value, Head& head) {
  while (!value.empty()) {
    const std::string_view option = without_blanks(next_part(value, ","));
    if (equals_ignoring_case(option, "close")) head.keeps_alive = false;
    if (equals_ignoring_case(option, "keep-alive") && head.minor_version == 0) {
      head.keeps_alive = true;
    }
  }
}

Refused note_field(const HeadField& field, Head& head) {
  if (equals_ignoring_case(field.name, "content-length")) {
    return read_content_length(field.value, head);
  }
  if (equals_ignoring_case(field.name, "transfer-encoding")) {
    return read_transfer_encoding(field.value, head);
  }
  if (equals_ignoring_case(field.name, "content-encoding")) {
    return read_content_encoding(field.value);
  }
  if (equals_ignoring_case(field.name, "connection")) read_connection(field.value, head);
  if (equals_ignoring_case(field.name, "expect")) {
    if (!equals_ignoring_case(field.value, "100-continue")) {
      return HeadError{417, "the only expectation met here is 100-continue"};
    }
    head.expects_continue = head.minor_version == 1;
  }
  return std::nullopt;
}

Refused read_field(std::string_view line, Head& head) {
  if (head.n_fields == kHeadFieldsMax) return HeadError{431, "too many header fields"};
  const auto field = tools::read_field(line);
  if (!field) return HeadError{400, "bad header field"};
  head.fields[head.n_fields++] = *field;
  return note_field(*field, head);
}

// Checks the fields that decide who asks: two programs could read different ones of several.
Refused check_single(const Head& head) {
  const u32 n_hosts = head.count("host");
  if (n_hosts > 1 || (n_hosts == 0 && head.minor_version == 1)) {
    return HeadError{400, "a request has one Host field"};
  }
  if (head.count("origin") > 1) return HeadError{400, "Origin is there twice"};
  if (head.count("authorization") > 1) return HeadError{400, "Authorization is there twice"};
  if (head.count("x-api-key") > 1) return HeadError{400, "X-Api-Key is there twice"};
  if (head.count("access-control-request-method") > 1) {
    return HeadError{400, "Access-Control-Request-Method is there twice"};
  }
  return std::nullopt;
}

}  // namespace

std::string_view Head::field(std::string_view name) const {
  for (u32 i = 0; i < n_fields; ++i) {
    if (equals_ignoring_case(fields[i].name, name)) return fields[i].value;
  }
  return "";
}

u32 Head::count(std::string_view name) const {
  u32 n = 0;
  for (u32 i = 0; i < n_fields; ++i) n += equals_ignoring_case(fields[i].name, name) ? 1u : 0u;
  return n;
}

Refused read_head(std::string_view bytes, Head& head) {
  Refused first = read_request_line(tools::first_line(bytes), head);
  while (!bytes.empty()) {
    const std::string_view line = next_part(bytes, "\r\n");
    if (line.empty()) break;
    const Refused refused = read_field(line, head);
    if (!first) first = refused;
  }
  if (first) return first;
  if (head.is_chunked && head.content_bytes) {
    return HeadError{400, "Content-Length beside Transfer-Encoding"};
  }
  return check_single(head);
}

}  // namespace tarn::daemon
