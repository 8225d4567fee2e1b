// Goal    A chunked body is the same in whatever pieces it comes, and nothing but RFC 9112's form.
// Method  A table, each whole, by bytes and cut at every place.
#include "tools/support/chunked_body.h"

#include <doctest/doctest.h>

#include <string>

namespace tarn::tools::chunked_body_test {
namespace {

using State = ChunkedBody::State;
constexpr u64 kBytesMax = 64;

struct ChunkedCase {
  const char* name;
  std::string bytes, body;
  State state;
  u64 n_left = 0;  // behind the end
};
const ChunkedCase kCases[] = {
    {"empty", "0\r\n\r\n", "", State::done},
    {"one", "3\r\nabc\r\n0\r\n\r\n", "abc", State::done},
    {"hexadecimal", "a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n", "0123456789x", State::done},
    {"upper case", "A\r\n0123456789\r\n0\r\n\r\n", "0123456789", State::done},
    {"zeros", "0003\r\nabc\r\n000\r\n\r\n", "abc", State::done},
    {"extension", "3;a=b\r\nabc\r\n0;c\r\n\r\n", "abc", State::done},
    {"trailer", "3\r\nabc\r\n0\r\nA: b\r\n\r\n", "abc", State::done},
    {"next request", "0\r\n\r\nGET", "", State::done, 3},
    {"line breaks in data", "4\r\n\r\n\r\n\r\n0\r\n\r\n", "\r\n\r\n", State::done},
    {"not whole", "3\r\nab", "ab", State::more},
    {"bare LF", "3\nabc\r\n0\r\n\r\n", "", State::bad},
    {"LF after data", "3\r\nabc\n0\r\n\r\n", "abc", State::bad},
    {"more data than said", "3\r\nabcd\r\n0\r\n\r\n", "abc", State::bad},
    {"no number", "x\r\n\r\n", "", State::bad},
    {"sign", "+3\r\nabc\r\n0\r\n\r\n", "", State::bad},
    {"minus", "-3\r\nabc\r\n0\r\n\r\n", "", State::bad},
    {"prefix", "0x3\r\nabc\r\n0\r\n\r\n", "", State::bad},
    {"space before", " 3\r\nabc\r\n0\r\n\r\n", "", State::bad},
    {"empty size", "\r\n\r\n", "", State::bad},
    {"beyond 64 bits", "fffffffffffffffff\r\n", "", State::bad},
    {"too long", "41\r\n" + std::string(65, 'x') + "\r\n0\r\n\r\n", "", State::too_long},
    {"long line", "3;" + std::string(300, 'a') + "\r\nabc\r\n0\r\n\r\n", "", State::bad},
    {"control byte", std::string("3;\x01\r\nabc\r\n0\r\n\r\n"), "", State::bad},
};

TEST_CASE("chunked bodies in one, two and all pieces") {
  for (const ChunkedCase& each : kCases) {
    CAPTURE(each.name);
    for (size_t cut = 0; cut <= each.bytes.size(); ++cut) {
      ChunkedBody chunks;
      std::string body;
      u64 n = chunks.take(std::string_view(each.bytes).substr(0, cut), body, kBytesMax);
      if (chunks.state() == State::more) {
        n += chunks.take(std::string_view(each.bytes).substr(cut), body, kBytesMax);
      }
      REQUIRE(chunks.state() == each.state);
      if (each.state != State::bad && each.state != State::too_long) {
        REQUIRE(body == each.body);
        REQUIRE(each.bytes.size() - n == each.n_left);
      }
    }
    ChunkedBody chunks;
    std::string body;
    for (const char c : each.bytes) {
      if (chunks.state() == State::more) chunks.take({&c, 1}, body, kBytesMax);
    }
    CHECK(chunks.state() == each.state);
  }
}

}  // namespace
}  // namespace tarn::tools::chunked_body_test
