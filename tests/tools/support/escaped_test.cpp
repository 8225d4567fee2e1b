// Goal    a name that somebody else chose is printed as text: whatever a terminal would obey is
//         escaped, in one way only, and everything that is text stays.
// Method  names by hand; every single byte, and every character of two bytes.
#include "tools/support/escaped.h"

#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "runtime/text/unicode.h"

namespace tarn::tools::escaped_test {
namespace {

TEST_CASE("control characters are seen, text stays") {
  CHECK(escaped("") == "");
  CHECK(escaped("my talk, 2nd") == "my talk, 2nd");
  CHECK(escaped("Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x8c\xb2") ==
        "Gr\xc3\xbc\xc3\x9f\x65 \xe2\x82\xac \xf0\x9f\x8c\xb2");
  CHECK(escaped("a\x1b[2Jb\r\n\tc") == "a\\x1b[2Jb\\x0d\\x0a\\x09c");
  CHECK(escaped("a\\x1b") == "a\\\\x1b");  // or it would look like the escaped one
  CHECK(escaped("\x9b"
                "2J") == "\\x9b2J");
  CHECK(escaped("\xc2\x9b"
                "2J") == "\\xc2\\x9b2J");
  CHECK(escaped("cut \xe2\x82") == "cut \\xe2\\x82");
  CHECK(escaped("\xe2(\xa1)") == "\\xe2(\\xa1)");
  CHECK(escaped(std::string_view("\0", 1)) == "\\x00");
}

bool obeys(unsigned code) { return code < 0x20 || (code >= 0x7F && code < 0xA0); }

TEST_CASE("no byte and no character of two bytes gets through that a terminal obeys") {
  for (unsigned byte = 0; byte < 256; ++byte) {
    CAPTURE(byte);
    const std::string text(1, static_cast<char>(byte));
    CHECK((escaped(text) == text) == (!obeys(byte) && byte < 0x80 && text != "\\"));
  }
  for (unsigned code = 0x80; code < 0x800; ++code) {
    CAPTURE(code);
    const std::string text = {static_cast<char>(0xC0 | (code >> 6)),
                              static_cast<char>(0x80 | (code & 0x3F))};
    CHECK((escaped(text) == text) == !obeys(code));
  }
}

std::string printed(std::string_view text) {
  char* bytes = nullptr;
  size_t n = 0;
  std::FILE* file = open_memstream(&bytes, &n);
  REQUIRE(file != nullptr);
  print_escaped(text, file);
  std::fclose(file);
  std::string out(bytes, n);
  std::free(bytes);
  return out;
}

TEST_CASE("text of several lines is printed with them, and with nothing else that is obeyed") {
  CHECK(printed("") == "");
  CHECK(printed("\\frac{1}{2}\n\tGr\xc3\xbc\xc3\x9f\x65 \xf0\x9f\x8c\xb2\n") ==
        "\\frac{1}{2}\n\tGr\xc3\xbc\xc3\x9f\x65 \xf0\x9f\x8c\xb2\n");
  CHECK(printed("a\x1b]0;b\x07\r\x7f") == "a\\x1b]0;b\\x07\\x0d\\x7f");
  CHECK(printed("\xc2\x9b") == "\\xc2\\x9b");
  CHECK(printed("\xff") == "\\xff");
}

TEST_CASE("bytes that are no UTF-8 become U+FFFD, one by one") {
  for (const char* each :
       {"", "a", "\xc3\xa4", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"}) {
    CHECK(text::is_utf8(each));
    CHECK(as_utf8(each) == each);
  }
  for (const char* each : {"\x80", "\xc0\xaf", "\xc3", "\xe0\x80\x80", "\xed\xa0\x80",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xe2\x82"}) {
    CHECK_FALSE(text::is_utf8(each));
    CHECK(text::is_utf8(as_utf8(each)));
  }
  CHECK(as_utf8("a\xff"
                "b") ==
        "a\xef\xbf\xbd"
        "b");
}

}  // namespace
}  // namespace tarn::tools::escaped_test
