// Goal    A request's head is read as RFC 9112 says, and refused where two readers could differ. It
//         makes no difference in which pieces its bytes come.
// Method  A table of heads; every prefix of each right one is not whole yet.
#include "tools/tarnd/http_head.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::daemon::http_head_test {
namespace {

// 0: right.
int status_of(const std::string& bytes) {
  const HeadEnd end = find_head_end(bytes);
  if (end.error) return end.error->status;
  if (end.n_bytes == 0) return -1;  // not whole
  Head head;
  const auto error = read_head({bytes.data(), end.n_bytes}, head);
  return error ? error->status : 0;
}

std::string with(const std::string& fields) {
  return "POST /x HTTP/1.1\r\nHost: h\r\n" + fields + "\r\n";
}
std::string line(const std::string& request_line) { return request_line + "\r\nHost: h\r\n\r\n"; }

struct HeadCase {
  std::string name, bytes;
  int status;
};
const HeadCase kCases[] = {
    {"plain", with(""), 0},
    {"empty line before", "\r\n" + with(""), 0},
    {"two empty lines before", "\r\n\r\n" + with(""), 400},
    {"bare LF", "GET / HTTP/1.1\nHost: h\n\n", 400},
    {"bare LF in a field", with("A: b\nC: d\r\n"), 400},
    {"bare CR", with("A: b\rC: d\r\n"), 400},
    {"CR CR LF", "GET / HTTP/1.1\r\r\nHost: h\r\n\r\n", 400},
    {"zero byte", with(std::string("A: b") + '\0' + "\r\n"), 400},
    {"control byte", with("A: \x01\r\n"), 400},
    {"delete byte", with("A: \x7f\r\n"), 400},
    {"tab in a value", with("A: b\tc\r\n"), 0},
    {"bytes above ASCII in a value", with("A: \xc3\xa4\r\n"), 0},
    {"bytes above ASCII in a name", with("\xc3\xa4: b\r\n"), 400},
    {"folded field", with("A: b\r\n c\r\n"), 400},
    {"folded by a tab", with("A: b\r\n\tc\r\n"), 400},
    {"space before the colon", with("A : b\r\n"), 400},
    {"no colon", with("A\r\n"), 400},
    {"no name", with(": b\r\n"), 400},
    {"empty value", with("A:\r\n"), 0},
    {"no host", "GET / HTTP/1.1\r\n\r\n", 400},
    {"no host in 1.0", "GET / HTTP/1.0\r\n\r\n", 0},
    {"two hosts", with("host: h\r\n"), 400},
    {"two origins", with("Origin: http://a\r\norigin: http://b\r\n"), 400},
    {"two origins, equal", with("Origin: http://a\r\nOrigin: http://a\r\n"), 400},
    {"two keys", with("Authorization: Bearer a\r\nAuthorization: Bearer b\r\n"), 400},
    {"two keys of the other name", with("X-Api-Key: a\r\nx-api-key: b\r\n"), 400},
    {"two methods to come",
     with("Access-Control-Request-Method: GET\r\naccess-control-request-method: POST\r\n"), 400},
    {"length", with("Content-Length: 5\r\n"), 0},
    {"length twice, equal", with("Content-Length: 5\r\ncontent-length: 5\r\n"), 400},
    {"length twice, other", with("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
    {"length as a list", with("Content-Length: 5, 5\r\n"), 400},
    {"length with a sign", with("Content-Length: +5\r\n"), 400},
    {"negative length", with("Content-Length: -5\r\n"), 400},
    {"hexadecimal length", with("Content-Length: 0x5\r\n"), 400},
    {"empty length", with("Content-Length: \r\n"), 400},
    {"length with a space", with("Content-Length: 5 5\r\n"), 400},
    {"length beyond 64 bits", with("Content-Length: 99999999999999999999\r\n"), 413},
    {"chunked", with("Transfer-Encoding: chunked\r\n"), 0},
    {"chunked, other case", with("Transfer-Encoding: ChunKed\r\n"), 0},
    {"chunked twice", with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
    {"another coding", with("Transfer-Encoding: gzip, chunked\r\n"), 501},
    {"coding with an end", with("Transfer-Encoding: chunked\x0b\r\n"), 400},
    {"length and chunked", with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), 400},
    {"chunked in 1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
    {"expectation", with("Expect: 100-continue\r\n"), 0},
    {"another expectation", with("Expect: x\r\n"), 417},
    {"content as it is", with("Content-Encoding: Identity, identity\r\n"), 0},
    {"no content coding", with("Content-Encoding: \r\n"), 0},
    {"compressed content", with("content-encoding: gzip\r\n"), 415},
    {"compressed twice", with("Content-Encoding: identity, br\r\n"), 415},
    {"version 2", line("GET / HTTP/2.0"), 505},
    {"version 1.2", line("GET / HTTP/1.2"), 505},
    {"no version", line("GET /"), 400},
    {"version with more", line("GET / HTTP/1.1 x"), 400},
    {"version in lower case", line("GET / http/1.1"), 400},
    {"two spaces", line("GET  / HTTP/1.1"), 400},
    {"space at the begin", line(" GET / HTTP/1.1"), 400},
    {"tab", line("GET\t/ HTTP/1.1"), 400},
    {"bad method", line("G@T / HTTP/1.1"), 400},
    {"fragment", line("GET /#a HTTP/1.1"), 400},
    {"relative target", line("GET x HTTP/1.1"), 400},
    {"asterisk", line("OPTIONS * HTTP/1.1"), 400},
    {"authority", line("CONNECT h:80 HTTP/1.1"), 400},
    {"absolute target", line("GET http://h/x?y HTTP/1.1"), 0},
    {"absolute target without a path", line("GET http://h HTTP/1.1"), 400},
    {"64 fields", with([] {
       std::string fields;
       for (int i = 0; i < 63; ++i) fields += "A: b\r\n";
       return fields;
     }()),
     0},
    {"65 fields", with([] {
       std::string fields;
       for (int i = 0; i < 64; ++i) fields += "A: b\r\n";
       return fields;
     }()),
     431},
    {"16 KiB", with("A: " + std::string(kHeadBytesMax, 'a') + "\r\n"), 431},
};

TEST_CASE("heads") {
  for (const HeadCase& each : kCases) {
    CAPTURE(each.name);
    CHECK(status_of(each.bytes) == each.status);
  }
}

TEST_CASE("a head that is not whole is waited for, and a bad byte is not") {
  for (const HeadCase& each : kCases) {
    CAPTURE(each.name);
    for (size_t n = 0; n < each.bytes.size(); ++n) {
      const HeadEnd end = find_head_end(std::string_view(each.bytes).substr(0, n));
      if (each.status == 0) {
        REQUIRE_FALSE(end.error.has_value());
        REQUIRE(end.n_bytes == 0);
      } else if (end.error) {
        CHECK(find_head_end(each.bytes).error.has_value());
      }
    }
  }
}

TEST_CASE("a head's length is all that may be there") {
  const std::string most =
      with("A: " + std::string(kHeadBytesMax - with("A: \r\n").size(), 'a') + "\r\n");
  REQUIRE(most.size() == kHeadBytesMax);
  CHECK(status_of(most) == 0);
  CHECK(find_head_end(most + "more").n_bytes == kHeadBytesMax);
}

TEST_CASE("what a head says") {
  Head head;
  const std::string bytes = with("Connection: x , close\r\nX-Api-Key:  k \r\n");
  REQUIRE_FALSE(read_head(bytes, head).has_value());
  CHECK(head.method == "POST");
  CHECK(head.path == "/x");
  CHECK_FALSE(head.keeps_alive);
  CHECK(head.field("x-api-key") == "k");
  CHECK(head.field("authorization").empty());
  Head other;
  const std::string absolute = line("GET http://h/a%20b?c=d HTTP/1.1");
  REQUIRE_FALSE(read_head(absolute, other).has_value());
  CHECK(other.path == "/a%20b");
  CHECK(other.query == "c=d");
  CHECK(other.keeps_alive);
}

}  // namespace
}  // namespace tarn::daemon::http_head_test
