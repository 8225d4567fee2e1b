// Goal    no bytes from the network end tarnd, or are read in two ways.
// Method  libFuzzer. A head that is taken is held against rules of RFC 9112 that are looked for
//         here by plain search; cut anywhere, head and chunks come out the same.
#include <algorithm>
#include <string>

#include "tests/fuzz/fuzz_input.h"
#include "tools/support/chunked_body.h"
#include "tools/tarnd/http_head.h"

namespace {

using namespace tarn;
using namespace tarn::daemon;
using tarn::tools::ChunkedBody;

constexpr u64 kBodyBytesMax = 4096;

using tarn::test::require;

// Checks what a program that reads leniently could understand differently.
void check_taken(std::string_view bytes, const Head& head) {
  u32 n_lengths = 0, n_codings = 0, n_hosts = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] == '\n') require(at > 0 && bytes[at - 1] == '\r');
    if (bytes[at] == '\r') require(at + 1 < bytes.size() && bytes[at + 1] == '\n');
    require(bytes[at] != '\0');
  }
  if (bytes.starts_with("\r\n")) bytes.remove_prefix(2);  // RFC 9112, 2.2
  size_t at = bytes.find("\r\n") + 2;
  for (u32 i = 0; bytes.substr(at) != "\r\n"; ++i) {
    const std::string_view line = bytes.substr(at, bytes.find("\r\n", at) - at);
    at += line.size() + 2;
    require(i < head.n_fields);
    require(line[0] != ' ' && line[0] != '\t');  // a folded field
    std::string name(line.substr(0, line.find(':')));
    require(name.size() < line.size() && !name.empty());
    require(name.find_first_of(" \t") == std::string::npos);
    require(name == head.fields[i].name);
    std::ranges::transform(name, name.begin(),
                           [](char c) { return 'A' <= c && c <= 'Z' ? c + ('a' - 'A') : c; });
    n_lengths += name == "content-length";
    n_codings += name == "transfer-encoding";
    n_hosts += name == "host";
  }
  require(n_lengths + n_codings <= 1);
  require(n_hosts <= 1 && (n_hosts == 1 || head.minor_version == 0));
  require(n_lengths == head.content_bytes.has_value() && n_codings == head.is_chunked);
  require(head.path.starts_with('/'));
}

void check_head(std::string_view bytes, u64 n_head) {
  Head head;
  const auto error = read_head(bytes.substr(0, n_head), head);
  if (!error) return check_taken(bytes.substr(0, n_head), head);
  require(error->status >= 400 && error->status < 600 && error->sentence[0] != '\0');
}

// The chunks in two pieces are those in one.
void check_chunks(std::string_view bytes, u64 cut) {
  ChunkedBody whole, in_two;
  std::string body, body_in_two;
  const u64 n = whole.take(bytes, body, kBodyBytesMax);
  u64 n_in_two = in_two.take(bytes.substr(0, cut), body_in_two, kBodyBytesMax);
  if (in_two.state() == ChunkedBody::State::more) {
    require(n_in_two == cut);
    n_in_two += in_two.take(bytes.substr(cut), body_in_two, kBodyBytesMax);
  }
  require(whole.state() == in_two.state());
  require(body.size() <= kBodyBytesMax);
  if (whole.state() == ChunkedBody::State::done || whole.state() == ChunkedBody::State::more) {
    require(n == n_in_two && body == body_in_two);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const u8* data, size_t n_bytes) {
  test::FuzzInput input(data, n_bytes);
  const u32 place = input.number<u16>();
  const std::string_view bytes = input.text(n_bytes);
  const u64 cut = bytes.empty() ? 0 : place % (bytes.size() + 1);
  const HeadEnd end = find_head_end(bytes), early = find_head_end(bytes.substr(0, cut));
  require(end.n_bytes <= bytes.size() && end.n_bytes <= kHeadBytesMax);
  // An error, or a whole head, stays so.
  if (early.error) require(end.error.has_value());
  if (early.n_bytes > 0) require(end.n_bytes == early.n_bytes);
  if (!end.error && end.n_bytes > 0) check_head(bytes, end.n_bytes);
  const u64 begin = end.error ? 0 : end.n_bytes;
  check_chunks(bytes.substr(begin), cut > begin ? cut - begin : 0);
  return 0;
}
