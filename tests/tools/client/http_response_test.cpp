// Goal    a response is read the same however its bytes are cut, and what is malformed is an error.
// Method  a table of responses, fed whole, byte by byte and in random cuts; a table of malformed
//         ones; heads and lines without an end.
#include "tools/client/http_response.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "tests/support/seed.h"
#include "tools/support/exit_code.h"
#include "tools/support/http_text.h"

namespace tarn::tools::http_response_test {
namespace {

struct Case {
  const char* name;
  std::string bytes;
  u32 status;
  std::string body;
};

const Case kCases[] = {
    {"a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello"},
    {"no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 200, ""},
    {"no reason", "HTTP/1.1 404 \r\ncontent-LENGTH:1\r\n\r\nx", 404, "x"},
    {"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204, ""},
    {"chunks",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: "
     "chunked\r\n\r\n4\r\nWiki\r\nA\r\n0123456789\r\n0\r\n\r\n",
     200, "Wiki0123456789"},
    {"chunks with extensions and a trailer",
     "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n2;a=b\r\n\r\n\r\n0\r\nX: y\r\n\r\n", 200,
     "\r\n"},
    {"an interim response first",
     "HTTP/1.1 100 Continue\r\nX: 1\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\ny", 200,
     "y"},
    {"until the end", "HTTP/1.1 500 Oh\r\nX: y\r\n\r\nsome\r\n\r\ntext", 500, "some\r\n\r\ntext"},
};

// Feeds pieces of lengths that `next` returns.
template <class Next>
void check(const Case& c, Next next) {
  HttpResponse response;
  std::string body;
  for (size_t begin = 0; begin < c.bytes.size();) {
    const size_t n = std::min<size_t>(next(), c.bytes.size() - begin);
    response.feed({c.bytes.data() + begin, n});
    body += response.take_body();
    begin += n;
  }
  response.end();
  CHECK(response.is_complete());
  CHECK(response.status() == c.status);
  CHECK(body == c.body);
}

TEST_CASE("a response is the same in any cut") {
  test::Random random(test::seed_from_environment());
  for (const Case& c : kCases) {
    CAPTURE(c.name);
    CAPTURE(random.seed());
    check(c, [&] { return c.bytes.size(); });
    check(c, [] { return size_t{1}; });
    for (int i = 0; i < 50; ++i) check(c, [&] { return size_t{1} + random.below(8); });
  }
}

TEST_CASE("header fields are found by their names in lower case, trimmed") {
  HttpResponse response;
  response.feed("HTTP/1.1 200 OK\r\nX-Request-ID: \t a b \r\nEmpty:\r\nContent-Length: 0\r\n\r\n");
  CHECK(response.header("x-request-id") == "a b");
  CHECK(response.header("empty").empty());
  CHECK(response.header("absent").empty());
}

constexpr const char* kMalformed[] = {
    "HTTP/1.0 200 OK\r\n\r\n",
    "SSH-2.0-x\r\n\r\n",
    "HTTP/1.1 2x0 OK\r\n\r\n",
    "HTTP/1.1 20\r\n\r\n",
    "HTTP/1.1 999 OK\r\n\r\n",
    "HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    "HTTP/1.1 200 OK\r\n: no name\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
    "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-2\r\nab\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
};

TEST_CASE("what is malformed is refused") {
  for (const char* bytes : kMalformed) {
    CAPTURE(bytes);
    HttpResponse response;
    CHECK_THROWS_AS(response.feed(bytes), Failure);
  }
}

TEST_CASE("a head, or a line, without an end is refused, and nothing grows with it") {
  for (const char* begin :
       {"HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;"}) {
    HttpResponse response;
    response.feed(begin);
    const std::string more(1024, '1');
    u64 n = 0;
    const auto feed_more = [&] {
      while (n <= 2 * kHeadBytesMax) {
        response.feed(more);
        n += more.size();
      }
    };
    CHECK_THROWS_AS(feed_more(), Failure);
    CHECK(n <= kHeadBytesMax + more.size());
  }
}

TEST_CASE("a connection that ends too early is an error") {
  for (const Case& c : kCases) {
    if (c.name == std::string("until the end")) continue;
    for (size_t n = 0; n < c.bytes.size(); ++n) {
      HttpResponse response;
      response.feed({c.bytes.data(), n});
      if (response.is_complete()) continue;
      CAPTURE(c.name);
      CAPTURE(n);
      CHECK_THROWS_AS(response.end(), Failure);
    }
  }
}

}  // namespace
}  // namespace tarn::tools::http_response_test
